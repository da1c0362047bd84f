//! Filter of a connection listing: parsed from the request's texts, matched against rows.

use std::net::{IpAddr, SocketAddr};

use config::{DestKey, ServiceKey};
use dataplane::conn::state::{TCP_NAMES, UDP_NAME};
use rustix::io::Errno;

use crate::api::codec::{ConnFilterText, Refusal};

/// Which connections are listed; an absent part lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnFilter {
    client: Option<(IpAddr, Option<u16>)>,
    service: Option<ServiceKey>,
    dest: Option<DestKey>,
    state: Option<&'static str>,
}

impl ConnFilter {
    /// Filter of these texts.
    ///
    /// # Errors
    /// EINVAL with the part that is none and what it should look like.
    pub fn parse(text: &ConnFilterText) -> Result<ConnFilter, Refusal> {
        let bad = |what: &str, value: &str, why: &dyn std::fmt::Display| {
            Refusal::new(Errno::INVAL, format!("{what} `{value}`: {why}"))
        };
        Ok(ConnFilter {
            client: match &text.client {
                Some(value) => Some(client(value).ok_or_else(|| {
                    bad("client", value, &"not an address, expected a text like 192.0.2.7 or 192.0.2.7:40000")
                })?),
                None => None,
            },
            service: match &text.service {
                Some(value) => Some(value.parse().map_err(|error| bad("service", value, &error))?),
                None => None,
            },
            dest: match &text.dest {
                Some(value) => Some(value.parse().map_err(|error| bad("dest", value, &error))?),
                None => None,
            },
            state: match &text.state {
                Some(value) => {
                    Some(states().find(|name| name.eq_ignore_ascii_case(value)).ok_or_else(|| {
                        let names = states().collect::<Vec<_>>().join(" ");
                        bad("state", value, &format!("unknown, expected one of {names}"))
                    })?)
                }
                None => None,
            },
        })
    }

    /// Whether everything passes.
    pub fn is_open(&self) -> bool {
        *self == ConnFilter::default()
    }

    /// Whether a connection of these parts passes.
    pub fn passes(&self, service: ServiceKey, client: SocketAddr, dest: SocketAddr, state: &str) -> bool {
        self.client
            .is_none_or(|(ip, port)| ip == client.ip() && port.is_none_or(|port| port == client.port()))
            && self.service.is_none_or(|wanted| wanted == service)
            && self.dest.is_none_or(|wanted| wanted == DestKey::new(dest.ip(), dest.port()))
            && self.state.is_none_or(|wanted| wanted == state)
    }
}

/// The names of all states, TCP's first.
fn states() -> impl Iterator<Item = &'static str> {
    TCP_NAMES.into_iter().chain([UDP_NAME])
}

/// Address with or without port.
fn client(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| (socket.ip(), Some(socket.port())));
    text.parse().ok().map(|ip| (ip, None)).or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(client: &str, service: &str, dest: &str, state: &str) -> Result<ConnFilter, Refusal> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ConnFilter::parse(&ConnFilterText {
            client: some(client),
            service: some(service),
            dest: some(dest),
            state: some(state),
        })
    }

    #[test]
    fn each_part_narrows() {
        let service = "tcp:198.51.100.1:80".parse().unwrap();
        let passes = |filter: ConnFilter| {
            filter.passes(
                service,
                "192.0.2.7:4000".parse().unwrap(),
                "10.0.0.1:80".parse().unwrap(),
                "FIN_WAIT",
            )
        };
        let cases = [
            ("", "", "", "", true),
            ("192.0.2.7", "", "", "", true),
            ("192.0.2.7:4000", "tcp:198.51.100.1:80", "10.0.0.1:80", "fin_wait", true),
            ("192.0.2.8", "", "", "", false),
            ("192.0.2.7:4001", "", "", "", false),
            ("", "udp:198.51.100.1:80", "", "", false),
            ("", "", "10.0.0.1:81", "", false),
            ("", "", "", "ESTABLISHED", false),
        ];
        for (client, service, dest, state, expected) in cases {
            let filter = filter(client, service, dest, state).unwrap();
            assert_eq!(passes(filter.clone()), expected, "{filter:?}");
        }
    }

    #[test]
    fn what_is_no_filter_is_named() {
        for (i, text) in ["client `x`", "service `x`", "dest `x`", "state `x`"].into_iter().enumerate() {
            let part = |n: usize| if n == i { "x" } else { "" };
            let refused = filter(part(0), part(1), part(2), part(3)).unwrap_err();
            assert_eq!(refused.errno, Errno::INVAL);
            assert!(refused.text.starts_with(text), "{}", refused.text);
        }
    }
}
