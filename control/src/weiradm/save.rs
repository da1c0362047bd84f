//! Services and destinations as lines that restore them.

use super::grammar::{Opt, Options};
use super::listing::{Texts, partial_netmask, scheduler_flag_names, sort_dests};
use super::names::Names;
use super::words_of::{numbered, protocol_option, tunnel};
use crate::ipvs::{Dest, Family, Method, Service, ServiceKey, flag};

/// The form of saved lines, from the options.
pub(super) struct Form<'a> {
    texts: Texts<'a>,
    thresholds: bool,
}

impl<'a> Form<'a> {
    pub(super) fn new(options: Options, names: &'a dyn Names) -> Form<'a> {
        Form { texts: Texts::new(options, names), thresholds: options.has(Opt::SaveAll) }
    }

    /// The lines of a service and its destinations.
    pub(super) fn service(&self, service: &Service, mut dests: Vec<Dest>) -> String {
        sort_dests(&mut dests);
        let name = self.service_name(&service.key);
        let options = &service.options;
        let mut out = format!("-A {name} -s {}", options.scheduler);
        if options.flags & flag::PERSISTENT != 0 {
            out.push_str(&format!(" -p {}", options.timeout_seconds));
            if let Some(mask) = partial_netmask(service) {
                out.push_str(&format!(" -M {mask}"));
            }
        }
        if let Some(engine) = &options.engine {
            out.push_str(&format!(" --pe {engine}"));
        }
        if options.flags & flag::ONE_PACKET != 0 {
            out.push_str(" -o");
        }
        match scheduler_flag_names(service) {
            // A flag that the scheduler has no name for leaves nothing, which cannot be restored.
            Some(_) if self.thresholds => out.push_str(&format!(" -b {}", numbered(options.flags))),
            Some(flags) => out.push_str(&format!(" -b {flags}")),
            None => {}
        }
        out.push('\n');
        for dest in &dests {
            out.push_str(&self.dest(&name, dest, service.key.protocol()));
        }
        out
    }

    fn service_name(&self, key: &ServiceKey) -> String {
        match *key {
            ServiceKey::Mark { family, mark } => {
                format!("-f {mark}{}", if family == Family::V6 { " -6" } else { "" })
            }
            ServiceKey::Address { protocol, address, port } => {
                format!("{} {}", protocol_option(protocol), self.texts.endpoint(address, port, protocol))
            }
        }
    }

    fn dest(&self, service: &str, dest: &Dest, protocol: u16) -> String {
        let method = match dest.options.method {
            Method::MASQUERADE => "-m",
            Method::TUNNEL => "-i",
            _ => "-g",
        };
        let endpoint = self.texts.endpoint(dest.key.address, dest.key.port, protocol);
        let weight = dest.options.weight;
        let mut out = format!("-a {service} -r {endpoint} {method} -w {weight}");
        if dest.options.method == Method::TUNNEL {
            out.push_str(&tunnel(&dest.options.tunnel));
        }
        if self.thresholds {
            for (option, value) in [("-x", dest.options.upper), ("-y", dest.options.lower)] {
                if value != 0 {
                    out.push_str(&format!(" {option} {value}"));
                }
            }
        }
        out.push('\n');
        out
    }
}
