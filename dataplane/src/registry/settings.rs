//! Settings of the configuration as workers use them.

use config::Valid;

use crate::conn::state::Timeouts;
use crate::snapshot::Knobs;

/// Knobs of `valid` under the limits that were fixed at start.
pub(super) fn knobs(valid: &Valid, limits: &config::Limits) -> Knobs {
    let mut knobs = Knobs {
        conn_reuse_mode: 1,
        expire_nodest_conn: false,
        sloppy_tcp: false,
        secure_tcp: 0,
        drop_packet: 0,
        am_droprate: 10,
        nat_icmp_send: false,
        timeouts: timeouts(valid.timeouts()),
        unmatched: valid.policy().unmatched,
        echo: valid.policy().echo,
        icmp_rate: limits.icmp_rate,
        icmp_burst: limits.icmp_burst,
    };
    set_knobs(&mut knobs, valid.knobs());
    knobs
}

/// Takes over the `net.ipv4.vs` settings that the packet path knows.
pub(super) fn set_knobs(knobs: &mut Knobs, to: &config::Knobs) {
    knobs.conn_reuse_mode = to.conn_reuse_mode;
    knobs.expire_nodest_conn = to.expire_nodest_conn != 0;
    knobs.sloppy_tcp = to.sloppy_tcp != 0;
    knobs.secure_tcp = to.secure_tcp;
    knobs.drop_packet = to.drop_packet;
    // As the kernel counts down: from a number below 0 it is at its end at once.
    knobs.am_droprate = if to.am_droprate < 0 { 1 } else { to.am_droprate.unsigned_abs() };
    knobs.nat_icmp_send = to.nat_icmp_send != 0;
}

/// Timeouts by state, in ticks.
pub(super) fn timeouts(to: &config::Timeouts) -> Timeouts {
    let mut timeouts = Timeouts::default();
    for (state, secs) in to.tcp_states().into_iter().enumerate() {
        timeouts.set_tcp(state as u8, secs);
    }
    timeouts.set_udp(to.udp);
    timeouts
}
