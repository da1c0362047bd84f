//! weiradm(8): the text of `weiradm --help` as a page, and what is deliberately different from ipvsadm.

use super::roff::Roff;
use crate::weiradm;

/// What ipvsadm 1.31 does, what weiradm does.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "Counters and rates of destinations",
        "ipvsadm cuts all but bytes to 32 bits, as it reads the 64-bit ones with its 32-bit reader. weiradm prints \
        them whole.",
    ),
    (
        "Firewall marks above 2147483647",
        "ipvsadm prints and saves them with a sign, in a form that it cannot restore. weiradm prints them without.",
    ),
    (
        "Thresholds in what is saved",
        "ipvsadm -S leaves out -x and -y, and writes -b without a value for a flag that the scheduler has no name for, \
        which it cannot restore. weiradm -S does too, to stay identical; --save-all writes them all.",
    ),
    ("Comments", "weiradm -R skips lines that begin with #; ipvsadm takes them for a mistake."),
    ("-h and -v", "ipvsadm asks the kernel first and fails without IPVS. weiradm needs no daemon for them."),
    ("-p without a value", "360 seconds, as with ipvsadm; ipvsadm's own manual says 300."),
];

pub(super) fn page() -> String {
    let mut page = Roff::new("weiradm", 8, "the command line of ipvsadm for the load balancer Weir");
    page.section("Description");
    page.text(
        "Words, texts, listings and exit statuses are those of ipvsadm 1.31, on the control socket of weir run. A \
        command that has returned is in force on every worker. It survives a reload of the configuration, of which \
        only lines that changed are applied.\n\n\
        With -c the connections are printed as they come, in any number.",
    );
    let mut in_usage = false;
    for line in weiradm::help("weiradm").lines().skip(1) {
        match line.strip_prefix("  ") {
            None if line.trim_end().ends_with(':') => {
                let title = line.trim_end().trim_end_matches(':');
                in_usage = title == "Usage";
                page.section(if in_usage { "Synopsis" } else { title });
            }
            None => page.text(line),
            Some(line) if in_usage => page.text(line),
            Some(line) => match line.trim_start().split_once("  ") {
                // A line that goes on where the one above ended.
                _ if line.starts_with("        ") => page.text(&format!("  {}", line.trim())),
                Some((term, text)) => entry(&mut page, term, text.trim()),
                None => page.entry(line.trim(), ""),
            },
        }
    }
    page.section("Further options");
    page.entry("--version -v", "Print the version.");
    page.section("Differences from ipvsadm");
    DIFFERENCES.iter().for_each(|(what, how)| page.entry(what, how));
    page.section("Exit status");
    page.text("0 done, 1 a listing failed, 2 wrong usage or no daemon, 255 the daemon refused.");
    page.section("Environment");
    page.entry("WEIR_SOCKET", "Control socket, unless --socket names one; else /run/weir/weir.sock.");
    page.section("See also");
    page.text("weir(8), weir.toml(5), ipvsadm(8)");
    page.finish()
}

/// Letters and values may stand apart from the name: `--scheduler    -s scheduler         one of ...`.
fn entry(page: &mut Roff, term: &str, text: &str) {
    match text.split_once("  ").filter(|(front, _)| front.starts_with('-') || !text.contains(' ')) {
        Some((front, text)) => page.entry(&format!("{term} {front}"), text.trim()),
        None => match text.rsplit_once("  ") {
            Some((front, text)) => page.entry(&format!("{term} {front}"), text.trim()),
            None => page.entry(term, text),
        },
    }
}
