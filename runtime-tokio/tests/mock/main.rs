//! The mock provider over real sockets: every directive does what it says. (F13, F15, M1–M6, X1, X2, X5 need upstreams
//! that fail in these ways; if the mock does not, their tests prove nothing.)

mod client;
mod content;
mod door;
mod faults;

use std::net::{Ipv4Addr, SocketAddr};

use client::{Call, Got};
use surefoot::mock::{Mock, Script};

/// Any port.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn mock(script: Script) -> Mock {
    Mock::start(ANY, script).await.expect("a free port")
}

/// One call to a mock of its own.
async fn once(call: Call) -> Got {
    call.send(mock(Script::default()).await.addr()).await
}
