//! The SERVICE nest: identity, options, listing.

use rustix::io::Errno;

use super::attr::{Attr, Attrs, Policy, Shape};
use super::stats;
use super::types::{Family, Service, ServiceEdit, ServiceKey, ServiceOptions, flag};

mod number {
    pub const FAMILY: u16 = 1;
    pub const PROTOCOL: u16 = 2;
    pub const ADDRESS: u16 = 3;
    pub const PORT: u16 = 4;
    pub const MARK: u16 = 5;
    pub const SCHEDULER: u16 = 6;
    pub const FLAGS: u16 = 7;
    pub const TIMEOUT: u16 = 8;
    pub const NETMASK: u16 = 9;
    pub const STATS: u16 = 10;
    pub const ENGINE: u16 = 11;
    pub const STATS64: u16 = 12;
}

/// Longest name of a scheduler (`IP_VS_SCHEDNAME_MAXLEN` less the NUL).
pub const SCHEDULER_NAME_MAX: usize = 15;
/// Longest name of a persistence engine (`IP_VS_PENAME_MAXLEN`).
pub const ENGINE_NAME_MAX: usize = 16;

/// What each attribute may hold.
pub(super) const POLICY: Policy = &[
    (number::FAMILY, Shape::AtLeast(2)),
    (number::PROTOCOL, Shape::AtLeast(2)),
    (number::ADDRESS, Shape::AtMost(16)),
    (number::PORT, Shape::AtLeast(2)),
    (number::MARK, Shape::AtLeast(4)),
    (number::SCHEDULER, Shape::Text(SCHEDULER_NAME_MAX)),
    (number::FLAGS, Shape::AtMost(8)),
    (number::TIMEOUT, Shape::AtLeast(4)),
    (number::NETMASK, Shape::AtLeast(4)),
    (number::STATS, Shape::Nest),
    (number::ENGINE, Shape::Text(ENGINE_NAME_MAX)),
    (number::STATS64, Shape::AtLeast(0)),
];

/// IP protocol of an address service whose mark attribute says 0.
const PROTOCOL_TCP: u16 = 6;

/// Reads the identity.
///
/// # Errors
/// EINVAL when a part is missing, EAFNOSUPPORT for a family that is neither IPv4 nor IPv6.
pub(super) fn read_key(nest: &Attrs<'_>) -> Result<ServiceKey, Errno> {
    let family = nest.u16(number::FAMILY).ok_or(Errno::INVAL)?;
    let mark = nest.u32(number::MARK);
    let protocol = nest.u16(number::PROTOCOL);
    let port = nest.u16_be(number::PORT);
    let address_given = nest.get(number::ADDRESS).is_some();
    if mark.is_none() && (protocol.is_none() || port.is_none() || !address_given) {
        return Err(Errno::INVAL);
    }
    let family = Family::from_number(family)?;
    Ok(match mark {
        // A mark of 0 is no mark: the kernel then looks for the address service whose other parts are zero.
        Some(0) => ServiceKey::Address { protocol: PROTOCOL_TCP, address: family.unspecified(), port: 0 },
        Some(mark) => ServiceKey::Mark { family, mark },
        None => ServiceKey::Address {
            protocol: protocol.ok_or(Errno::INVAL)?,
            address: nest.address(number::ADDRESS, family).ok_or(Errno::INVAL)?,
            port: port.ok_or(Errno::INVAL)?,
        },
    })
}

/// Reads the options.
///
/// # Errors
/// EINVAL when one that is required is missing.
pub(super) fn read_edit(nest: &Attrs<'_>, family: Family) -> Result<ServiceEdit, Errno> {
    let [flags, mask] = flags_and_mask(nest).ok_or(Errno::INVAL)?;
    let netmask = match family {
        Family::V4 => nest.u32_be(number::NETMASK),
        Family::V6 => nest.u32(number::NETMASK),
    };
    let options = ServiceOptions {
        scheduler: nest.text(number::SCHEDULER).ok_or(Errno::INVAL)?,
        engine: nest.text(number::ENGINE).filter(|name| !name.is_empty()),
        flags,
        timeout_seconds: nest.u32(number::TIMEOUT).ok_or(Errno::INVAL)?,
        netmask: netmask.ok_or(Errno::INVAL)?,
    };
    Ok(ServiceEdit { options, mask })
}

/// Reads a listed service. Statistics that are not there count as zero.
///
/// # Errors
/// As [`read_key`] and [`read_edit`].
pub(super) fn read(nest: &Attrs<'_>) -> Result<Service, Errno> {
    let key = read_key(nest)?;
    let mut options = read_edit(nest, key.family())?.options;
    options.flags &= !flag::HASHED;
    Ok(Service { key, options, stats: stats::read(nest, number::STATS64).unwrap_or_default() })
}

/// Attributes of a listed service.
pub(super) fn listed(service: &Service) -> Vec<Attr> {
    let mut attributes = identity(&service.key);
    let flags = service.options.flags | flag::HASHED;
    attributes.extend(options(&service.options, service.key.family(), flags));
    attributes.push(stats::legacy(number::STATS, &service.stats));
    attributes.push(stats::full(number::STATS64, &service.stats));
    attributes
}

/// Attributes of the identity.
pub(super) fn identity(key: &ServiceKey) -> Vec<Attr> {
    let family = Attr::u16(number::FAMILY, key.family() as u16);
    match *key {
        ServiceKey::Mark { mark, .. } => vec![family, Attr::u32(number::MARK, mark)],
        ServiceKey::Address { protocol, address, port } => vec![
            family,
            Attr::u16(number::PROTOCOL, protocol),
            Attr::address(number::ADDRESS, address),
            Attr::u16_be(number::PORT, port),
        ],
    }
}

/// Attributes of a request: identity and options, all flags meant.
pub(super) fn requested(key: &ServiceKey, wanted: &ServiceOptions) -> Vec<Attr> {
    let mut attributes = identity(key);
    attributes.extend(options(wanted, key.family(), wanted.flags));
    attributes
}

fn options(options: &ServiceOptions, family: Family, flags: u32) -> Vec<Attr> {
    let netmask = match family {
        Family::V4 => Attr::u32_be(number::NETMASK, options.netmask),
        Family::V6 => Attr::u32(number::NETMASK, options.netmask),
    };
    let mut attributes = vec![Attr::text(number::SCHEDULER, &options.scheduler)];
    attributes.extend(options.engine.as_ref().map(|name| Attr::text(number::ENGINE, name)));
    attributes.push(Attr::pair(number::FLAGS, flags, u32::MAX));
    attributes.push(Attr::u32(number::TIMEOUT, options.timeout_seconds));
    attributes.push(netmask);
    attributes
}

fn flags_and_mask(nest: &Attrs<'_>) -> Option<[u32; 2]> {
    let bytes: [u8; 8] = nest.padded(number::FLAGS)?;
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some([half(0), half(4)])
}
