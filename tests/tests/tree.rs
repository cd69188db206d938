//! The smol data plane has no tokio in its tree: not as a dependency, not for building, not for its tests.

use std::process::Command;

use surefoot_tests::binaries::workspace;

#[test]
fn nothing_in_the_smol_runtimes_tree_is_tokio() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = |package: &str| {
        let told = Command::new(&cargo)
            .args(["tree", "--locked", "--package", package, "--prefix", "none", "--format", "{p}"])
            .args(["--edges", "all", "--all-features"])
            .current_dir(workspace())
            .output()
            .expect("cargo runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("names are text")
    };
    let is_tokio = |line: &&str| line.starts_with("tokio ") || line.starts_with("tokio-") || line.starts_with("hyper ");
    assert_eq!(tree("surefoot-smol").lines().filter(is_tokio).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(tree("surefoot").lines().any(|line| is_tokio(&line)), "what is looked for would be found");
}
