//! Tests of the estimators: the arithmetic against tables and a kernel's recordings, the machine in a simulated world.

mod balance;
mod block;
mod interleaved;
mod machine;
mod model;
mod tables;
mod threads;
mod world;
