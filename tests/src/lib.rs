//! Starts the built binaries as their users do, and drives them from outside.
//!
//! Nothing here links the runtimes under test: a test that crosses crates sees what a user sees, and one list of tests
//! serves every runtime ([`on_each_runtime`]). Only traces are read by the core, whose format they are.

pub mod binaries;
pub mod clients;
pub mod http;
pub mod metrics;
pub mod process;
pub mod proxy;
pub mod store;
pub mod tls;
pub mod upstream;

pub use binaries::{RUNTIMES, Runtime, SMOL, TOKIO};
pub use process::{Gateway, Launch, Mock};

/// Makes a `#[test]` of every named function for every runtime. Each takes a `&'static Runtime`.
///
/// Each runtime is a module here, and every test that exists runs on all of them.
#[macro_export]
macro_rules! on_each_runtime {
    ($($name:ident),+ $(,)?) => {
        mod tokio {
            $(
                #[test]
                fn $name() {
                    super::$name(&$crate::TOKIO);
                }
            )+
        }
        mod smol {
            $(
                #[test]
                fn $name() {
                    super::$name(&$crate::SMOL);
                }
            )+
        }
    };
}

/// The end of a configuration: the provider `up`, which serves the model `m` of chat at this address. Its keys may follow.
pub fn provider(url: &str) -> String {
    format!(
        r#"[discovery]
configured_models_mode = "allowlist"
[[providers]]
name = "up"
formats = ["chat"]
base_url = "{url}/v1"
models = ["m"]"#
    )
}

/// Says on the terminal that something was not tested, or fails where that is not allowed (`CI` is set).
///
/// Written to the descriptor itself: the test harness swallows what goes through `eprintln!`, and a silent skip looks
/// like a pass.
///
/// # Panics
///
/// `CI` is set to anything but nothing: there everything that a test needs has to be installed.
pub fn skip(what: &str, missing: &str) {
    use std::io::Write as _;
    assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{what} cannot be skipped in CI: {missing}");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {what}: {missing}");
}

/// Looks every few milliseconds until `done` says yes; `false` when that takes longer than `seconds`.
pub fn within(seconds: u64, mut done: impl FnMut() -> bool) -> bool {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    loop {
        if done() {
            return true;
        }
        if std::time::Instant::now() > limit {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
