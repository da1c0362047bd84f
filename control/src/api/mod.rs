//! The control socket.
pub mod codec;
