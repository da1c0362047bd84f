//! The search for the family's number: the part of the kernel's `nlctrl` family that IPVS programs use.
//!
//! Source: `linux/genetlink.h`; the answer is byte for byte that of kernel 6.12, the number apart.

use netlink_packet_generic::constants::{CTRL_CMD_GETFAMILY, CTRL_CMD_NEWFAMILY, GENL_ID_CTRL};
use rustix::io::Errno;

use super::attr::{Attr, Attrs, Policy, Shape};
use super::message::{Body, FAMILY_ID, FAMILY_NAME, FAMILY_VERSION};
use super::request::Command;

/// Message type of `nlctrl`.
pub(super) const CONTROL_ID: u16 = GENL_ID_CTRL;
/// Version of `nlctrl` that kernels speak.
const CONTROL_VERSION: u8 = 2;
/// Highest number of an attribute of the family (`IPVS_CMD_ATTR_MAX`).
const ATTRIBUTE_MAX: u32 = 6;

mod number {
    pub const FAMILY_ID: u16 = 1;
    pub const FAMILY_NAME: u16 = 2;
    pub const VERSION: u16 = 3;
    pub const HEADER_BYTES: u16 = 4;
    pub const ATTRIBUTE_MAX: u16 = 5;
    pub const COMMANDS: u16 = 6;
    /// Inside an entry of COMMANDS.
    pub const COMMAND: u16 = 1;
    pub const COMMAND_FLAGS: u16 = 2;
}

/// Flags of a command (`GENL_ADMIN_PERM`, `GENL_CMD_CAP_*`).
mod command_flag {
    pub const ADMIN: u32 = 0x1;
    pub const DO: u32 = 0x2;
    pub const DUMP: u32 = 0x4;
    pub const HAS_POLICY: u32 = 0x8;
}

/// Longest name of a family (`GENL_NAMSIZ` less the NUL).
const FAMILY_NAME_MAX: usize = 15;

const POLICY: Policy =
    &[(number::FAMILY_ID, Shape::AtLeast(2)), (number::FAMILY_NAME, Shape::Text(FAMILY_NAME_MAX))];

/// The answer to a lookup with this command and these attributes; `dump` asks for all families.
///
/// # Errors
/// ENOENT for any family but ours, EOPNOTSUPP for other commands, EINVAL and ERANGE for malformed ones.
pub(super) fn answer(command: u8, dump: bool, attributes: &[u8]) -> Result<Body, Errno> {
    if command != CTRL_CMD_GETFAMILY {
        return Err(Errno::OPNOTSUPP);
    }
    if !dump {
        let wanted = Attrs::top(attributes, POLICY)?;
        let by_id = wanted.u16(number::FAMILY_ID).map(|id| id == FAMILY_ID);
        let by_name = wanted.text(number::FAMILY_NAME).map(|name| name == FAMILY_NAME);
        if !by_name.or(by_id).ok_or(Errno::INVAL)? {
            return Err(Errno::NOENT);
        }
    }
    let commands = Command::ALL.iter().zip(1..).map(|(command, index)| {
        let entry =
            [Attr::u32(number::COMMAND, *command as u32), Attr::u32(number::COMMAND_FLAGS, flags(*command))];
        Attr::nest(index, entry.into())
    });
    let attributes = vec![
        Attr::text(number::FAMILY_NAME, FAMILY_NAME),
        Attr::u16(number::FAMILY_ID, FAMILY_ID),
        Attr::u32(number::VERSION, u32::from(FAMILY_VERSION)),
        Attr::u32(number::HEADER_BYTES, 0),
        Attr::u32(number::ATTRIBUTE_MAX, ATTRIBUTE_MAX),
        Attr::nest(number::COMMANDS, commands.collect()),
    ];
    Ok(Body { family_id: CONTROL_ID, version: CONTROL_VERSION, command: CTRL_CMD_NEWFAMILY, attributes })
}

/// A client's request for the family's number.
pub(super) fn request() -> Body {
    Body {
        family_id: CONTROL_ID,
        version: 1,
        command: CTRL_CMD_GETFAMILY,
        attributes: vec![Attr::text(number::FAMILY_NAME, FAMILY_NAME)],
    }
}

/// The family's number in an answer.
pub(super) fn read(attributes: &[u8]) -> Option<u16> {
    Attrs::top(attributes, POLICY).ok()?.u16(number::FAMILY_ID)
}

fn flags(command: Command) -> u32 {
    use command_flag::{ADMIN, DO, DUMP, HAS_POLICY};
    match command {
        Command::GetService => ADMIN | DO | DUMP | HAS_POLICY,
        Command::GetDest | Command::GetDaemon => ADMIN | DUMP,
        _ => ADMIN | DO | HAS_POLICY,
    }
}
