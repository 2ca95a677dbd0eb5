//! Rules that hold for the whole tree: the direction of dependencies, where `unsafe` may be, no
//! unfinished code, short files, and documents that name no path that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Crates from the lowest to the highest: each may use only the ones named beside it.
const MAY_USE: [(&str, &[&str]); 15] = [
    ("core", &[]),
    ("ftl", &["core"]),
    ("trace", &["core"]),
    ("host", &["core"]),
    ("linux", &["core", "host"]),
    ("report", &["core"]),
    ("sim", &["core", "ftl", "trace", "host"]),
    ("drive", &["core", "ftl", "linux"]),
    ("doctor", &["core", "linux"]),
    ("keeper", &["core", "linux", "doctor"]),
    ("bench", &["core", "ftl", "linux"]),
    ("observe", &["core", "trace", "linux"]),
    ("guest", &["core", "linux"]),
    ("lab", &["core", "ftl", "linux", "drive", "keeper", "guest"]),
    (
        "cli",
        &[
            "core", "ftl", "trace", "linux", "report", "drive", "doctor", "keeper", "bench", "observe",
            "guest", "lab", "sim",
        ],
    ),
];

/// Lines that a file outside tests may have.
const LONGEST: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file below `crates`, with its path from the root and its text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root().join("crates"), &mut found).expect("the tree can be read");
    assert!(found.len() > 100, "only {} files found: is the root right?", found.len());
    found
}

fn collect(directory: &Path, found: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            found.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn none(broken: &[String]) {
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn manifests_have_all_that_a_registry_asks_for() {
    let manifest = |path: PathBuf| -> toml::Table {
        toml::from_str(&fs::read_to_string(path).expect("manifest")).expect("manifest is TOML")
    };
    let workspace = manifest(root().join("Cargo.toml"));
    let shared = workspace["workspace"]["package"].as_table().expect("a table");
    for (name, _) in MAY_USE {
        let directory = root().join("crates").join(name);
        let package = manifest(directory.join("Cargo.toml"))["package"].clone();
        for key in ["version", "license", "readme", "keywords", "rust-version"] {
            assert!(
                package[key]["workspace"].as_bool() == Some(true) && shared.contains_key(key),
                "{name}: {key}"
            );
        }
        for key in ["description", "documentation", "categories"] {
            assert!(package.get(key).is_some(), "{name} has no {key}");
        }
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(directory.join(licence).is_file(), "{name} has no {licence}");
        }
        // Without a version, a crate with such a dependency cannot be published.
        let dependency = &workspace["workspace"]["dependencies"];
        let known = name == "cli" || dependency[&format!("trimtab-{name}")]["version"] == shared["version"];
        assert!(known, "{name}: its version as a dependency");
    }
}

#[test]
fn dependencies_point_downwards() {
    let allowed = BTreeMap::from(MAY_USE);
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        let text = fs::read_to_string(path.join("Cargo.toml")).expect("manifest");
        let manifest: toml::Table = toml::from_str(&text).expect("manifest is TOML");
        let Some(may) = allowed.get(name.as_str()) else {
            broken.push(format!("crates/{name} is new: say in MAY_USE which crates it may use"));
            continue;
        };
        for table in ["dependencies", "build-dependencies"] {
            let dependencies = manifest.get(table).and_then(toml::Value::as_table);
            for used in dependencies.into_iter().flatten() {
                if let Some(used) = used.0.strip_prefix("trimtab-")
                    && !may.contains(&used)
                {
                    broken.push(format!("crates/{name} uses {used}, which MAY_USE doesn't allow"));
                }
            }
        }
        seen.insert(name);
    }
    assert_eq!(seen.len(), MAY_USE.len(), "MAY_USE names crates that are gone: {seen:?}");
    none(&broken);
}

#[test]
fn unsafe_is_in_linux_alone_with_its_reason() {
    let openings = ["{", "fn", "impl", "extern"].map(|what| format!("{}safe {what}", "un"));
    let mut broken = Vec::new();
    for (file, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            if !openings.iter().any(|o| code(line).contains(o.as_str()))
                || file == "crates/core/tests/house.rs"
            {
                continue;
            }
            if !file.starts_with("crates/linux/") {
                broken.push(format!("{file}:{}: unsafe outside crates/linux", i + 1));
            } else if !lines[i.saturating_sub(5)..=i].iter().any(|l| l.contains("SAFETY")) {
                broken.push(format!("{file}:{}: unsafe without a SAFETY comment", i + 1));
            }
        }
    }
    none(&broken);
}

#[test]
fn code_is_finished() {
    let unfinished = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let mut broken = Vec::new();
    for (file, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            if unfinished.iter().any(|u| code(line).contains(u.as_str())) {
                broken.push(format!("{file}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    none(&broken);
}

#[test]
fn files_are_short() {
    let broken: Vec<String> = sources()
        .iter()
        .filter(|(file, text)| !file.contains("/tests/") && text.lines().count() > LONGEST)
        .map(|(file, text)| format!("{file} has {} lines, more than {LONGEST}", text.lines().count()))
        .collect();
    none(&broken);
}

#[test]
fn paths_in_documents_exist() {
    let mut documents: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md"].map(|d| root().join(d)).into();
    if let Ok(docs) = fs::read_dir(root().join("docs")) {
        documents.extend(docs.map(|d| d.expect("entry").path()));
    }
    let mut broken = Vec::new();
    for document in documents.iter().filter(|d| d.is_file()) {
        let text = fs::read_to_string(document).expect("document is text");
        let end = |c: char| !(c.is_ascii_alphanumeric() || "/._-*".contains(c));
        for word in text.split(end) {
            let path = word.trim_end_matches(['.', '/']);
            let ours = ["crates/", "docs/", "vm/", "profiles/"].iter().any(|d| path.starts_with(d));
            if ours && !path.contains('*') && !root().join(path).exists() {
                broken.push(format!("{}: {path} doesn't exist", document.display()));
            }
        }
    }
    none(&broken);
}

/// `make test` runs the programs that the Makefile names, and no others.
#[test]
fn every_test_program_is_in_one_tier() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile").replace("\\\n", " ");
    let tier = |name: &str| {
        let line = makefile.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
        line.unwrap_or_else(|| panic!("the Makefile has no {name}")).split_whitespace().map(str::to_owned)
    };
    let mut named: Vec<String> = ["QUICK", "ROOT", "VM"].into_iter().flat_map(tier).collect();
    named.sort();
    let mut programs = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let Ok(tests) = fs::read_dir(entry.expect("entry").path().join("tests")) else { continue };
        for test in tests {
            let path = test.expect("entry").path();
            let is_program = path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").exists();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if is_program && !programs.insert(name.clone()) {
                panic!("two test programs are called {name}: a tier cannot name one of them");
            }
        }
    }
    assert_eq!(named, programs.into_iter().collect::<Vec<_>>());
}

/// Licences under which a dependency may be, alone or as one of several choices.
const LICENCES: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "BSL-1.0",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "ISC",
];

/// Whether a licence expression can be met by `LICENCES`: every part that AND joins has to have a choice among them.
fn is_permissive(expression: &str) -> bool {
    let is_known = |choice: &str| LICENCES.contains(&choice.trim_matches(['(', ')', ' ']));
    expression
        .split(" AND ")
        .all(|part| part.split(" OR ").flat_map(|choice| choice.split('/')).any(is_known))
}

#[test]
fn licences_of_dependencies_are_permissive() {
    assert!(is_permissive("(MIT OR Apache-2.0) AND Unicode-3.0") && is_permissive("GPL-2.0/MIT"));
    assert!(!is_permissive("MIT AND GPL-3.0") && !is_permissive("MPL-2.0"));
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert!(packages.len() > 100, "only {} packages found", packages.len());
    let mut broken = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("no licence");
        if !is_permissive(licence) {
            broken.push(format!("{}: {licence}", package["name"]));
        }
    }
    none(&broken);
}
