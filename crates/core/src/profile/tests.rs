//! Profiles as text, and the ones that are built in.

use super::*;

const GOOD: &str = include_str!("../../profiles/ocz-agility-3.toml");

fn broken(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the profile has {from}");
    let text = GOOD.replacen(from, to, 1);
    Profile::parse(&text, "my.toml").unwrap_err().to_string()
}

fn line_of(start: &str) -> &'static str {
    GOOD.lines().find(|line| line.starts_with(start)).expect("the profile has such a line")
}

#[test]
fn every_built_in_profile_is_valid_and_sourced() {
    for profile in builtin().unwrap() {
        assert_eq!(Profile::named(&profile.name), Ok(profile.clone()));
        let tree = toml::Value::try_from(&profile).unwrap();
        let tables = tree.as_table().unwrap().values().filter_map(toml::Value::as_table);
        for (field, entry) in tables.flatten() {
            let source = entry["source"].as_str().unwrap();
            assert!(source.len() > 10, "{}: {field} has the source {source:?}", profile.name);
            for word in ["calibrated", "assumed"] {
                let target = source.strip_prefix(word).unwrap_or(source).trim_start_matches([':', ',', ' ']);
                assert!(target.len() > 10, "{}: {field} is only {word}", profile.name);
            }
        }
    }
}

#[test]
fn a_profile_survives_being_written() {
    let profile = Profile::named("ocz-agility-3").unwrap();
    let text = toml::to_string(&profile).unwrap();
    assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
}

#[test]
fn mistakes_name_file_and_field() {
    assert_eq!(broken(line_of("erase ="), ""), "my.toml: timing: missing field `erase`");
    assert_eq!(
        broken(line_of("erase ="), "erase = { value = \"-3 ms\", source = \"a test\" }"),
        "my.toml: timing.erase.value: \"-3 ms\" is negative; it must be 0 or more"
    );
    assert_eq!(
        broken(line_of("erase ="), "erase = { value = \"9000000000 s\", source = \"a test\" }"),
        "my.toml: timing.erase: 9000000000 s must be at most 3600 s"
    );
    assert_eq!(
        broken(line_of("erase ="), "erase = { value = \"3 ms\", source = \" \" }"),
        "my.toml: timing.erase.source: must say where the value comes from"
    );
    let bare = broken(line_of("queued ="), "queued = false");
    assert!(bare.contains("expected a table like { value = ..., source"), "{bare}");
    let unknown = broken("[timing]", "[timing]\nwarp = 9");
    assert!(unknown.starts_with("my.toml: timing.warp: unknown field `warp`, expected"), "{unknown}");
    assert_eq!(
        broken(line_of("erase_block ="), "erase_block = { value = \"5 KiB\", source = \"a test\" }"),
        "my.toml: geometry.erase_block: 5 KiB must be a whole multiple of program_unit"
    );
    assert_eq!(
        broken("[discard]", "[discard]\nignored_every = { value = 0, source = \"a test\" }"),
        "my.toml: discard.ignored_every: 0 must be 1 or more"
    );
    let syntax = Profile::parse("name = \n", "my.toml").unwrap_err().to_string();
    assert!(syntax.starts_with("my.toml: line 1: "), "{syntax}");
}

#[test]
fn unknown_name_lists_the_known_ones() {
    let message = Profile::named("floppy").unwrap_err().to_string();
    assert!(message.contains("ocz-agility-3"), "{message}");
}

#[test]
fn garbage_collection_names_round_trip() {
    for name in ["greedy", "fifo", "d-choices:4", "cost-benefit"] {
        assert_eq!(name.parse::<GcPolicy>().unwrap().to_string(), name);
    }
    for name in ["d-choices:0", "d-choices:1025", "d-choices:4294967295", "d-choices", "lru"] {
        let refused = name.parse::<GcPolicy>().unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("D from 1 to 1024"), "{refused}");
    }
}
