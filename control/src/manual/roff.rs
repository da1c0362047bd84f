//! A page in the man(7) macros.

use std::fmt::Write as _;

/// A page as it grows.
pub struct Roff(String);

impl Roff {
    /// A page of this name and section with its line for whatis(1).
    pub fn new(name: &str, section: u8, what: &str) -> Roff {
        let mut page = Roff(String::new());
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(page.0, ".TH {} {section} \"\" \"weir {version}\" \"Weir\"", name.to_uppercase());
        // No hyphenation, left-aligned: options and values are to be copied.
        page.0.push_str(".nh\n.ad l\n");
        page.section("NAME");
        page.text(&format!("{name} - {what}"));
        page
    }

    /// A heading.
    pub fn section(&mut self, title: &str) {
        let _ = writeln!(self.0, ".SH {}", escaped(&title.to_uppercase()));
    }

    /// A heading below a heading.
    pub fn subsection(&mut self, title: &str) {
        let _ = writeln!(self.0, ".SS {}", escaped(title));
    }

    /// A paragraph for each text between empty lines; lines that begin with two blanks stand as they are.
    pub fn text(&mut self, text: &str) {
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            self.0.push_str(".PP\n");
            self.lines(paragraph);
        }
    }

    /// An entry of a list: what it is about, in bold, and a text.
    pub fn entry(&mut self, term: &str, text: &str) {
        let _ = writeln!(self.0, ".TP\n\\fB{}\\fR", escaped(term));
        self.lines(text);
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.0
    }

    fn lines(&mut self, text: &str) {
        let mut verbatim = false;
        for line in text.lines() {
            if line.starts_with("  ") != verbatim {
                verbatim = !verbatim;
                self.0.push_str(if verbatim { ".RS 4\n.nf\n" } else { ".fi\n.RE\n" });
            }
            let _ = writeln!(self.0, "{}", escaped(line.trim_start()));
        }
        if verbatim {
            self.0.push_str(".fi\n.RE\n");
        }
    }
}

/// Text in which nothing is a request or an escape: hyphens stay hyphens, a dot in front is a dot.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\(rs").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
