//! The connection listing.

use std::net::SocketAddr;

use super::listing::{Texts, protocol_number};
use crate::api::rows::ConnRow;
use crate::show;

/// A line of the connection listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Protocol as the kernel prints it.
    pub protocol: String,
    /// State, by the kernel's name.
    pub state: String,
    /// Time until it expires.
    pub expires_seconds: u64,
    /// Client address and port.
    pub client: SocketAddr,
    /// Virtual address and port.
    pub service_address: SocketAddr,
    /// Destination address and port.
    pub dest: SocketAddr,
    /// Persistence engine and its data.
    pub engine: Option<(String, String)>,
}

impl From<ConnRow> for Entry {
    fn from(row: ConnRow) -> Entry {
        Entry {
            protocol: row.protocol,
            state: row.state,
            expires_seconds: row.expires_ms / 1000,
            client: row.client,
            service_address: row.service_address,
            dest: row.dest,
            engine: None,
        }
    }
}

/// Head of the listing.
pub(super) fn head(with_engine: bool) -> String {
    if !with_engine {
        return show::conns::head();
    }
    format!(
        "IPVS connection entries\npro expire {:<11} {:<18} {:<18} {:<18} {:<16} {}\n",
        "state", "source", "virtual", "destination", "pe name", "pe_data"
    )
}

/// One line; an entry without persistence data stays short even where the head has columns for it.
pub(super) fn line(entry: &Entry, with_engine: bool, texts: &Texts<'_>) -> String {
    let protocol = protocol_number(&entry.protocol);
    let endpoint = |of: SocketAddr| texts.endpoint(of.ip(), of.port(), protocol);
    let seconds = entry.expires_seconds;
    let expires = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    let mut line = format!(
        "{:<3} {expires:<6} {:<11} {:<18} {:<18} ",
        entry.protocol,
        entry.state,
        endpoint(entry.client),
        endpoint(entry.service_address),
    );
    let dest = endpoint(entry.dest);
    match &entry.engine {
        Some((name, data)) if with_engine => line.push_str(&format!("{dest:<16} {name:<18} {data}\n")),
        _ => line.push_str(&format!("{dest}\n")),
    }
    line
}
