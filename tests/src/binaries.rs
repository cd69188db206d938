//! Where the binaries under test are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

/// A binary that serves the data plane.
#[derive(Debug)]
pub struct Runtime {
    /// How tests call it.
    pub name: &'static str,
    /// The binary.
    pub binary: &'static str,
    /// The environment variable that names another build of it.
    pub variable: &'static str,
    /// The HTTP that it prefers towards providers, as the upstreams here tell it.
    pub http: &'static str,
}

/// The gateway that people run.
pub const TOKIO: Runtime = Runtime { name: "tokio", binary: "surefoot", variable: "SUREFOOT_BIN", http: "h2" };

/// The same data plane on smol.
pub const SMOL: Runtime =
    Runtime { name: "smol", binary: "surefoot-smol", variable: "SUREFOOT_SMOL_BIN", http: "http/1.1" };

/// All of them.
pub const RUNTIMES: [&Runtime; 2] = [&TOKIO, &SMOL];

impl Runtime {
    /// The path of the binary, built first where it is older than what it is built from, unless its variable names one.
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
        let path = profile_dir().join(format!("{}{}", self.binary, std::env::consts::EXE_SUFFIX));
        // `cargo test --workspace` has built it for the tests of its own package; `-p surefoot-tests` alone has not.
        if modified(&path) < newest(&workspace()) {
            build();
        }
        assert!(path.is_file(), "no {} after a build; name a binary with {}", path.display(), self.variable);
        path
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// When anything was last changed that a binary may be built from. This package is no part of any.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let times = entries.filter_map(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        let skipped =
            name.as_encoded_bytes().starts_with(b".") || ["target", "tests", "docs"].iter().any(|n| name == *n);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !skipped => newest(&path),
            Ok(kind) if kind.is_file() && path.extension().is_none_or(|end| end != "md") => modified(&path),
            _ => None,
        }
    });
    times.max()
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

/// Builds the workspace's binaries once a process: cargo gives no path to another package's binary at compile time.
fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = match profile_dir().file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev".to_owned(),
            Some(other) => other.to_owned(),
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // What cargo told this test of its own package is news to the build scripts that look at such variables: they and
        // all that stands on them would be built anew, and once more by the next build from a shell.
        let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
            command.env_remove(name);
        }
        let done = command
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
