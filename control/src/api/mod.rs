//! The control socket.
pub mod codec;
pub mod rows;
