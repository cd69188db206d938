//! Where the binaries under test are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A binary that serves the data plane.
#[derive(Debug)]
pub struct Runtime {
    /// How tests call it.
    pub name: &'static str,
    /// The binary.
    pub binary: &'static str,
    /// The environment variable that names another build of it.
    pub variable: &'static str,
}

/// The gateway that people run.
pub const TOKIO: Runtime = Runtime { name: "tokio", binary: "surefoot", variable: "SUREFOOT_BIN" };

impl Runtime {
    /// The path of the binary, built first unless its variable names one.
    ///
    /// # Panics
    ///
    /// There is none and it cannot be built.
    pub fn path(&self) -> PathBuf {
        if let Some(given) = std::env::var_os(self.variable).filter(|given| !given.is_empty()) {
            let given = PathBuf::from(given);
            assert!(given.is_file(), "{} names {}, and that is no file", self.variable, given.display());
            return given;
        }
        build();
        let path = profile_dir().join(format!("{}{}", self.binary, std::env::consts::EXE_SUFFIX));
        assert!(path.is_file(), "no {} after a build; name a binary with {}", path.display(), self.variable);
        path
    }
}

/// The target directory of this build: packages of real clients are kept below it.
pub fn target_dir() -> PathBuf {
    profile_dir().parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// `target/debug` and the like: two levels above a test, one above a binary.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let dir = exe.parent().unwrap_or(Path::new("."));
    let dir = if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir };
    dir.to_path_buf()
}

/// Builds the workspace's binaries once a process. Cargo gives no path to another package's binary at compile time, and
/// `cargo test` builds a package's binaries for its own tests only; one that is older than its sources must not be tested.
fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = match profile_dir().file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev".to_owned(),
            Some(other) => other.to_owned(),
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let done = Command::new(cargo)
            .args(["build", "--quiet", "--workspace", "--exclude", "surefoot-tests", "--bins", "--profile", &profile])
            .arg("--target-dir")
            .arg(target_dir())
            .current_dir(workspace())
            .stdin(Stdio::null())
            .output();
        let done = done.unwrap_or_else(|error| panic!("cargo does not run: {error}"));
        assert!(done.status.success(), "the binaries do not build:\n{}", String::from_utf8_lossy(&done.stderr));
    });
}
