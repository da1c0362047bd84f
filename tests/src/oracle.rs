//! Slow, obvious models to hold the balancer against. They share no code with it.

pub mod sched;
