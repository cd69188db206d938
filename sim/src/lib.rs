//! Simulated worlds for Surefoot.
//!
//! The very machine that serves traffic (the core's gateway, calls, pool and loop) runs on a clock that only the world
//! moves, against upstreams that speak every protocol and fail in every way, under judges that share nothing with it.
//! A run is decided by its seed. See `docs/simulation.md`.

pub mod chaos;
pub mod coverage;
pub mod digest;
pub mod invariants;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod p6;
pub mod replay;
pub mod rng;
pub mod scenario;
pub mod shrink;
pub mod world;
