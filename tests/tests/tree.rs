//! The smol data plane has no tokio in its tree: not as a dependency, not for building, not for its tests. Nor has it a
//! client of the store that it does not use.

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
    const FOREIGN: [&str; 4] = ["tokio ", "tokio-", "hyper ", "redis "];
    let (smol, tokio) = (tree("surefoot-smol"), tree("surefoot"));
    for name in FOREIGN {
        let found = |tree: &str| tree.lines().any(|line| line.starts_with(name));
        assert!(!found(&smol), "{name}");
        assert!(found(&tokio), "{name}: what is looked for would be found");
    }
}
