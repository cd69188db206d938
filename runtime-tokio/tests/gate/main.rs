//! The gate in memory and the gate in a store are one gate (G18, S13): the same commands, the same replies.

mod differential;
mod steps;
mod store;
