//! The DEST nest: identity, options, listing.

use rustix::io::Errno;

use super::attr::{Attr, Attrs, Policy, Shape};
use super::stats;
use super::types::{Dest, DestKey, DestOptions, Family, Method, Tunnel};

mod number {
    pub const ADDRESS: u16 = 1;
    pub const PORT: u16 = 2;
    pub const METHOD: u16 = 3;
    pub const WEIGHT: u16 = 4;
    pub const UPPER: u16 = 5;
    pub const LOWER: u16 = 6;
    pub const ACTIVE: u16 = 7;
    pub const INACTIVE: u16 = 8;
    pub const PERSISTENT: u16 = 9;
    pub const STATS: u16 = 10;
    pub const FAMILY: u16 = 11;
    pub const STATS64: u16 = 12;
    pub const TUNNEL_TYPE: u16 = 13;
    pub const TUNNEL_PORT: u16 = 14;
    pub const TUNNEL_FLAGS: u16 = 15;
}

/// What each attribute may hold.
pub(super) const POLICY: Policy = &[
    (number::ADDRESS, Shape::AtMost(16)),
    (number::PORT, Shape::AtLeast(2)),
    (number::METHOD, Shape::AtLeast(4)),
    (number::WEIGHT, Shape::AtLeast(4)),
    (number::UPPER, Shape::AtLeast(4)),
    (number::LOWER, Shape::AtLeast(4)),
    (number::ACTIVE, Shape::AtLeast(4)),
    (number::INACTIVE, Shape::AtLeast(4)),
    (number::PERSISTENT, Shape::AtLeast(4)),
    (number::STATS, Shape::Nest),
    (number::FAMILY, Shape::AtLeast(2)),
    (number::STATS64, Shape::AtLeast(0)),
    (number::TUNNEL_TYPE, Shape::AtLeast(1)),
    (number::TUNNEL_PORT, Shape::AtLeast(2)),
    (number::TUNNEL_FLAGS, Shape::AtLeast(2)),
];

/// Reads the identity; without a family, or with family 0, it has the service's.
///
/// # Errors
/// EINVAL when a part is missing, EAFNOSUPPORT for a family that is neither IPv4 nor IPv6.
pub(super) fn read_key(nest: &Attrs<'_>, of_service: Family) -> Result<DestKey, Errno> {
    let port = nest.u16_be(number::PORT).ok_or(Errno::INVAL)?;
    nest.get(number::ADDRESS).ok_or(Errno::INVAL)?;
    let family = match nest.u16(number::FAMILY) {
        None | Some(0) => of_service,
        Some(other) => Family::from_number(other)?,
    };
    Ok(DestKey { address: nest.address(number::ADDRESS, family).ok_or(Errno::INVAL)?, port })
}

/// Reads the options; a tunnel that is not described is an IPIP one.
///
/// # Errors
/// EINVAL when one that is required is missing.
pub(super) fn read_options(nest: &Attrs<'_>) -> Result<DestOptions, Errno> {
    let required = |kind: u16| nest.u32(kind).ok_or(Errno::INVAL);
    Ok(DestOptions {
        method: Method::from_wire(required(number::METHOD)?),
        weight: required(number::WEIGHT)?.cast_signed(),
        upper: required(number::UPPER)?,
        lower: required(number::LOWER)?,
        tunnel: Tunnel {
            kind: nest.u8(number::TUNNEL_TYPE).unwrap_or(0),
            port: nest.u16_be(number::TUNNEL_PORT).unwrap_or(0),
            flags: nest.u16(number::TUNNEL_FLAGS).unwrap_or(0),
        },
    })
}

/// Reads a listed destination. Statistics that are not there count as zero.
///
/// # Errors
/// As [`read_key`] and [`read_options`].
pub(super) fn read(nest: &Attrs<'_>, of_service: Family) -> Result<Dest, Errno> {
    Ok(Dest {
        key: read_key(nest, of_service)?,
        options: read_options(nest)?,
        active: nest.u32(number::ACTIVE).unwrap_or(0),
        inactive: nest.u32(number::INACTIVE).unwrap_or(0),
        persistent: nest.u32(number::PERSISTENT).unwrap_or(0),
        stats: stats::read(nest, number::STATS64).unwrap_or_default(),
    })
}

/// Attributes of a listed destination.
pub(super) fn listed(dest: &Dest) -> Vec<Attr> {
    let options = &dest.options;
    vec![
        Attr::address(number::ADDRESS, dest.key.address),
        Attr::u16_be(number::PORT, dest.key.port),
        Attr::u32(number::METHOD, u32::from(options.method.0)),
        Attr::u32(number::WEIGHT, options.weight.cast_unsigned()),
        Attr::u8(number::TUNNEL_TYPE, options.tunnel.kind),
        Attr::u16_be(number::TUNNEL_PORT, options.tunnel.port),
        Attr::u16(number::TUNNEL_FLAGS, options.tunnel.flags),
        Attr::u32(number::UPPER, options.upper),
        Attr::u32(number::LOWER, options.lower),
        Attr::u32(number::ACTIVE, dest.active),
        Attr::u32(number::INACTIVE, dest.inactive),
        Attr::u32(number::PERSISTENT, dest.persistent),
        Attr::u16(number::FAMILY, Family::of(dest.key.address) as u16),
        stats::legacy(number::STATS, &dest.stats),
        stats::full(number::STATS64, &dest.stats),
    ]
}

/// Attributes of a request, in ipvsadm's order.
pub(super) fn requested(key: &DestKey, options: &DestOptions) -> Vec<Attr> {
    vec![
        Attr::u16(number::FAMILY, Family::of(key.address) as u16),
        Attr::address(number::ADDRESS, key.address),
        Attr::u16_be(number::PORT, key.port),
        Attr::u32(number::METHOD, u32::from(options.method.0)),
        Attr::u32(number::WEIGHT, options.weight.cast_unsigned()),
        Attr::u8(number::TUNNEL_TYPE, options.tunnel.kind),
        Attr::u16_be(number::TUNNEL_PORT, options.tunnel.port),
        Attr::u16(number::TUNNEL_FLAGS, options.tunnel.flags),
        Attr::u32(number::UPPER, options.upper),
        Attr::u32(number::LOWER, options.lower),
    ]
}
