//! The connection listing.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::listing::{Texts, protocol_number};
use crate::api::rows::ConnRow;
use crate::show;

/// Widths of columns, those of ipvsadm's format string.
const ENDPOINT: usize = 18;
const DEST_BEFORE_ENGINE: usize = 16;
const ENGINE: usize = 18;

/// A line of the connection listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Protocol as the kernel prints it.
    pub protocol: Cow<'static, str>,
    /// State, by the kernel's name.
    pub state: Cow<'static, str>,
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

impl From<&ConnRow> for Entry {
    fn from(row: &ConnRow) -> Entry {
        Entry {
            protocol: row.protocol.into(),
            state: row.state.into(),
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

/// Adds one line; an entry without persistence data stays short even where the head has columns for it.
pub(super) fn push_line(text: &mut String, entry: &Entry, with_engine: bool, texts: &Texts<'_>) {
    let protocol = protocol_number(&entry.protocol);
    let endpoint = |text: &mut String, of: SocketAddr| texts.push_endpoint(text, of, protocol);
    show::conns::push_front(text, &entry.protocol, entry.expires_seconds, &entry.state);
    for of in [entry.client, entry.service_address] {
        show::conns::push_column(text, ENDPOINT, |text| endpoint(text, of));
    }
    match &entry.engine {
        Some((name, data)) if with_engine => {
            show::conns::push_column(text, DEST_BEFORE_ENGINE, |text| endpoint(text, entry.dest));
            show::conns::push_column(text, ENGINE, |text| text.push_str(name));
            text.push_str(data);
        }
        _ => endpoint(text, entry.dest),
    }
    text.push('\n');
}
