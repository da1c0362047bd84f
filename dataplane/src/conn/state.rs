//! Protocol states, the events that move them and how long each may last.
//!
//! The TCP machine is kernel IPVS's: it looks at flags and direction only, never at sequence
//! numbers. A packet is an event (the first of RST, SYN, FIN, ACK that it carries) in a row: from the
//! server, from the client, or from the client while no reply was ever seen here, as with direct
//! routing. The **secure** table makes a connection prove itself by an answer from the server before
//! it counts as established. UDP has one state.
//!
//! Pure data and functions; [`Timeouts`] is part of the workers' configuration.

use super::record::Direction;
use super::wheel::ticks_of_secs;

/// TCP state numbers, as kernel IPVS sends them to its peers.
pub mod tcp {
    /// Nothing seen yet.
    pub const NONE: u8 = 0;
    /// Data may flow.
    pub const ESTABLISHED: u8 = 1;
    /// The server side sent a SYN.
    pub const SYN_SENT: u8 = 2;
    /// The client sent a SYN.
    pub const SYN_RECV: u8 = 3;
    /// The server closed, or the client and the server is out of sight.
    pub const FIN_WAIT: u8 = 4;
    /// Both closed.
    pub const TIME_WAIT: u8 = 5;
    /// Reset, or started with something that cannot start.
    pub const CLOSE: u8 = 6;
    /// The client closed.
    pub const CLOSE_WAIT: u8 = 7;
    /// Waits for the acknowledgement of the last FIN.
    pub const LAST_ACK: u8 = 8;
    /// Listens.
    pub const LISTEN: u8 = 9;
    /// The secure table's half-open state.
    pub const SYNACK: u8 = 10;
    /// Number of states.
    pub const STATES: usize = 11;
}

/// TCP flag bits (RFC 9293 §3.1) that are events.
pub mod tcp_flag {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Start.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Acknowledgement.
    pub const ACK: u8 = 0x10;
}

/// The one state of a UDP connection.
pub const UDP_NORMAL: u8 = 0;

/// Seconds of a new connection until its first state step.
pub const NEW_SECS: u32 = 3;

/// Seconds of a state that no table knows.
pub const UNKNOWN_SECS: u32 = 2;

/// Which rows of the TCP table a packet goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// From the client, replies pass here.
    Input = 0,
    /// From the server.
    Output = 1,
    /// From the client, no reply was ever seen here.
    InputOnly = 2,
}

impl Row {
    /// The row of a packet of `direction`, where `no_output` says that the connection's flag
    /// `NO_OUTPUT` is set. The first reply clears that flag.
    #[inline(always)]
    pub fn of(direction: Direction, no_output: bool) -> Row {
        match direction {
            Direction::Reply => Row::Output,
            Direction::Request if no_output => Row::InputOnly,
            Direction::Request => Row::Input,
        }
    }
}

/// The state after a packet with TCP `flags`. Hot.
///
/// A packet without any of the four event flags closes; a `state` that does not exist too.
#[inline(always)]
pub fn tcp_next(secure: bool, row: Row, state: u8, flags: u8) -> u8 {
    let event = if flags & tcp_flag::RST != 0 {
        3
    } else if flags & tcp_flag::SYN != 0 {
        0
    } else if flags & tcp_flag::FIN != 0 {
        1
    } else if flags & tcp_flag::ACK != 0 {
        2
    } else {
        return tcp::CLOSE;
    };
    TCP[secure as usize * ROWS + row as usize * EVENTS + event][(state & 15) as usize]
}

/// Does a TCP connection in `state` count as active at its destination? All others count as
/// inactive. Hot.
#[inline(always)]
pub fn tcp_is_active(state: u8) -> bool {
    const ACTIVE: u32 = 1 << tcp::ESTABLISHED | 1 << tcp::SYN_SENT | 1 << tcp::SYN_RECV | 1 << tcp::SYNACK;
    ACTIVE >> (state & 31) & 1 != 0
}

/// The names of TCP's states in listings, by number.
pub const TCP_NAMES: [&str; tcp::STATES] = [
    "NONE",
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "SYNACK",
];

/// The name of UDP's one state.
pub const UDP_NAME: &str = "UDP";

/// The name of a TCP state in listings.
pub fn tcp_name(state: u8) -> &'static str {
    TCP_NAMES.get(state as usize).copied().unwrap_or("ERR!")
}

/// The name of a UDP state in listings.
pub fn udp_name(state: u8) -> &'static str {
    if state == UDP_NORMAL { UDP_NAME } else { "ERR!" }
}

/// How long a connection may be silent in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    tcp_secs: [u32; tcp::STATES],
    udp_secs: u32,
    tcp_ticks: [u32; 16],
    udp_ticks: u32,
}

impl Default for Timeouts {
    /// Kernel IPVS's defaults.
    fn default() -> Self {
        let mut timeouts = Timeouts {
            tcp_secs: [0; tcp::STATES],
            udp_secs: 0,
            tcp_ticks: [ticks_of_secs(UNKNOWN_SECS); 16],
            udp_ticks: 0,
        };
        for (state, secs) in [
            (tcp::NONE, 2),
            (tcp::ESTABLISHED, 15 * 60),
            (tcp::SYN_SENT, 2 * 60),
            (tcp::SYN_RECV, 60),
            (tcp::FIN_WAIT, 2 * 60),
            (tcp::TIME_WAIT, 2 * 60),
            (tcp::CLOSE, 10),
            (tcp::CLOSE_WAIT, 60),
            (tcp::LAST_ACK, 30),
            (tcp::LISTEN, 2 * 60),
            (tcp::SYNACK, 2 * 60),
        ] {
            timeouts.set_tcp(state, secs);
        }
        timeouts.set_udp(5 * 60);
        timeouts
    }
}

impl Timeouts {
    /// Gives TCP `state` a timeout of `secs` seconds; a state that does not exist is ignored. Control.
    pub fn set_tcp(&mut self, state: u8, secs: u32) {
        if let Some(of_state) = self.tcp_secs.get_mut(state as usize) {
            *of_state = secs;
            self.tcp_ticks[state as usize & 15] = ticks_of_secs(secs);
        }
    }

    /// Gives UDP a timeout of `secs` seconds. Control.
    pub fn set_udp(&mut self, secs: u32) {
        self.udp_secs = secs;
        self.udp_ticks = ticks_of_secs(secs);
    }

    /// Seconds of TCP `state`.
    pub fn tcp_secs(&self, state: u8) -> u32 {
        self.tcp_secs.get(state as usize).copied().unwrap_or(UNKNOWN_SECS)
    }

    /// Seconds of UDP.
    pub fn udp_secs(&self) -> u32 {
        self.udp_secs
    }

    /// Ticks of TCP `state`. Hot.
    #[inline(always)]
    pub fn tcp(&self, state: u8) -> u32 {
        self.tcp_ticks[(state & 15) as usize]
    }

    /// Ticks of UDP. Hot.
    #[inline(always)]
    pub fn udp(&self) -> u32 {
        self.udp_ticks
    }
}

/// Events of a row group: SYN, FIN, ACK, RST, in this order.
const EVENTS: usize = 4;

/// Rows of a table: three groups.
const ROWS: usize = 3 * EVENTS;

/// New state by row and old state, the plain table and the secure one after it. Padded to 16 columns
/// with CLOSE, so that no state can reach beyond a row.
static TCP: [[u8; 16]; 2 * ROWS] = {
    let mut padded = [[tcp::CLOSE; 16]; 2 * ROWS];
    let mut row = 0;
    while row < 2 * ROWS {
        let from = if row < ROWS { &PLAIN[row] } else { &SECURE[row - ROWS] };
        let mut state = 0;
        while state < tcp::STATES {
            padded[row][state] = from[state];
            state += 1;
        }
        row += 1;
    }
    padded
};

const ES: u8 = tcp::ESTABLISHED;
const SS: u8 = tcp::SYN_SENT;
const SR: u8 = tcp::SYN_RECV;
const FW: u8 = tcp::FIN_WAIT;
const TW: u8 = tcp::TIME_WAIT;
const CL: u8 = tcp::CLOSE;
const CW: u8 = tcp::CLOSE_WAIT;
const LA: u8 = tcp::LAST_ACK;
const LI: u8 = tcp::LISTEN;
const SA: u8 = tcp::SYNACK;

/// The table in force by default; columns are old states.
#[rustfmt::skip]
const PLAIN: [[u8; tcp::STATES]; ROWS] = [
    // Input:      NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR],
    /* FIN */     [CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, TW],
    /* ACK */     [ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES],
    /* RST */     [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, SR],
    // Output:     NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SS, ES, SS, SR, SS, SS, SS, SS, SS, LI, SR],
    /* FIN */     [TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW],
    /* ACK */     [ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES],
    /* RST */     [CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL],
    // Input only: NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR],
    /* FIN */     [CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW],
    /* ACK */     [ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES],
    /* RST */     [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL],
];

/// The table while the secure defence is on.
#[rustfmt::skip]
const SECURE: [[u8; tcp::STATES]; ROWS] = [
    // Input:      NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SA],
    /* FIN */     [CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, SA],
    /* ACK */     [ES, ES, SS, SR, FW, TW, CL, CW, CL, LI, SA],
    /* RST */     [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL],
    // Output:     NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SS, ES, SS, SA, SS, SS, SS, SS, SS, LI, SA],
    /* FIN */     [TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW],
    /* ACK */     [ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES],
    /* RST */     [CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL],
    // Input only: NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
    /* SYN */     [SA, ES, ES, SR, SA, SA, SA, SA, SA, SA, SA],
    /* FIN */     [CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW],
    /* ACK */     [ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES],
    /* RST */     [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL],
];
