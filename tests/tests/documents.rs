//! What the documents show works: their configurations are good ones, their code is the example's (F14).

use std::collections::BTreeSet;

use surefoot_tests::binaries::workspace;
use surefoot_tests::{Launch, Runtime, on_each_runtime};

on_each_runtime!(the_configurations_in_the_documents_are_good_ones);

fn text(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks.map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// The names that a text takes from the environment.
fn variables(text: &str) -> BTreeSet<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next()).collect()
}

fn the_configurations_in_the_documents_are_good_ones(runtime: &Runtime) {
    let mut checked = 0;
    for document in ["README.md", "docs/configuration.md", "docs/shared-state.md"] {
        for block in blocks(&text(document), "toml") {
            // A fragment says nothing of providers, and needs one.
            let provider = "[[providers]]\nname = \"p\"\nformats = [\"chat\"]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
            let file = if block.contains("[[providers]]") { block.clone() } else { format!("{provider}{block}") };
            let launch = Launch::new(runtime, &["check", "--config", "c.toml"]).file("c.toml", &file);
            let launch = variables(&file).into_iter().fold(launch, |launch, name| launch.env(name, "sk-any"));
            let (code, out, err) = launch.run();
            assert_eq!(code, Some(0), "{document}: {out}{err}\nin:\n{block}");
            checked += 1;
        }
    }
    assert!(checked >= 3, "only {checked} configurations were found");
}

#[test]
fn the_readmes_code_is_the_examples() {
    let example = text("core/examples/embed.rs");
    let shown = blocks(&text("README.md"), "rust");
    assert_eq!(shown.len(), 1);
    assert!(example.contains(&shown[0]), "README.md and core/examples/embed.rs have drifted apart");
}

#[test]
fn the_documents_link_to_what_is_there() {
    for document in ["README.md", "docs/configuration.md", "docs/operations.md", "docs/mock.md", "docs/replay.md"] {
        let folder = workspace().join(document).parent().map(std::path::Path::to_path_buf).unwrap_or_default();
        let text = text(document);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            assert!(folder.join(link).exists(), "{document} links to {link}, which is not there");
        }
    }
}

/// Whoever looks a key up finds it: the whole file in docs/configuration.md has every key of the tables below it.
#[test]
fn every_key_in_the_tables_is_in_the_whole_file() {
    let document = text("docs/configuration.md");
    let whole = &blocks(&document, "toml")[0];
    let tables = document.split("## Environment").next().unwrap_or_default();
    let cells = tables.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let keys = cells.flat_map(|cell| cell.split(',')).map(|key| key.trim().trim_matches('`'));
    for key in keys {
        let last = key.rsplit('.').next().unwrap_or(key);
        let there = whole.contains(&format!("{last} =")) || whole.contains(&format!(".{last}]"));
        assert!(there, "`{key}` has a row, but is not in the whole file");
    }
}
