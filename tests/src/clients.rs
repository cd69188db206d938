//! Real clients: where their packages are, and running their scripts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binaries::{target_dir, workspace};
use crate::process::{Gateway, Mock};
use crate::{Runtime, skip};

/// A gateway with the configuration of the client scripts, and the mock provider behind it.
#[derive(Debug)]
pub struct Stage {
    /// The gateway.
    pub gateway: Gateway,
    /// All providers of its configuration.
    pub mock: Mock,
}

/// The key that the scripts' gateway wants from its clients.
pub const CLIENT_KEY: &str = "client-key-of-the-tests";

impl Stage {
    /// Starts both.
    ///
    /// # Panics
    ///
    /// One of them does not start.
    pub fn start(runtime: &Runtime) -> Stage {
        let mock = Mock::start();
        let path = scripts().join("gateway.toml");
        let config = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let env = [("MOCK_URL", mock.url()), ("CLIENT_KEY", CLIENT_KEY.to_owned())];
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Stage { gateway: Gateway::start_with(runtime, &config, &env), mock }
    }
}

/// Where the scripts are.
pub fn scripts() -> PathBuf {
    workspace().join("tests").join("clients")
}

/// Where `tests/clients/setup.sh` puts the packages.
fn packages() -> PathBuf {
    std::env::var_os("SUREFOOT_CLIENTS").map_or_else(|| target_dir().join("clients"), PathBuf::from)
}

/// A language that scripts are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Packages in a virtual environment.
    Python,
    /// Packages in a `node_modules`.
    Node,
}

impl Language {
    /// The interpreter, if it and its packages are there.
    fn interpreter(self) -> Option<PathBuf> {
        let (interpreter, packages) = match self {
            Language::Python => {
                let python = packages().join("venv/bin/python");
                (python.clone(), python)
            }
            Language::Node => (PathBuf::from("node"), packages().join("node/node_modules/openai/package.json")),
        };
        (packages.is_file() && runs(&interpreter)).then_some(interpreter)
    }
}

/// Whether a program is there.
pub fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a script's scenarios against a gateway of its own. Each prints `ok NAME` or `FAIL NAME` and what went wrong, the
/// last line is `N passed, N failed`.
///
/// # Panics
///
/// A scenario failed, fewer than `at_least` ran, or the packages are missing where they must not be.
pub fn run_script(runtime: &Runtime, language: Language, script: &str, at_least: usize) {
    let Some(interpreter) = language.interpreter() else {
        skip(script, "its packages are not installed; `bash tests/clients/setup.sh` does that");
        return;
    };
    let stage = Stage::start(runtime);
    let done = Command::new(interpreter)
        .arg(scripts().join(script))
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("GATEWAY_URL", stage.gateway.url())
        .env("MOCK_URL", stage.mock.url())
        .env("CLIENT_KEY", CLIENT_KEY)
        .env("NODE_PACKAGES", packages().join("node"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{script} does not run: {error}"));
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(done.status.success(), "{script} failed:\n{text}\nthe gateway wrote:\n{}", stage.gateway.output());
    assert!(passed >= at_least, "{script}: {passed} scenarios ran, {at_least} were expected:\n{text}");
}
