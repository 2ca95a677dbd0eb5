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
            let refused = mistake_in(source);
            assert_eq!(refused, None, "{}: {field} has the source {source:?}", profile.name);
        }
    }
}

/// The mistake in a source, if any, which a built-in profile must not have: it is too short to name anything, or assumes
/// without a reason.
fn mistake_in(source: &str) -> Option<&'static str> {
    if source.len() <= 10 {
        return Some("too short");
    }
    let is_bare = |reason: &str| !reason.starts_with(": ") || reason.len() <= 10;
    source.strip_prefix("assumed").is_some_and(is_bare).then_some("assumed without a reason")
}

#[test]
fn sources_that_name_nothing_are_found() {
    assert_eq!(mistake_in("assumed, as others"), Some("assumed without a reason"));
    assert_eq!(mistake_in("typical"), Some("too short"));
    assert_eq!(mistake_in("assumed: the mapping unit"), None);
    assert_eq!(mistake_in("ONFI 1.0: 50 MB/s a channel"), None);
}

#[test]
fn calibrated_values_name_what_they_were_fitted_to() {
    for source in [
        "calibrated",
        "calibrated: typical of SATA drives of its time",
        "calibrated to the mapping unit",
        "calibrated with the command cost: 18 s of 6 minutes",
        "the notes; calibrated, with range, to a chart",
    ] {
        let line = line_of("erase =");
        let (field, _) = line.split_once("source").unwrap();
        let refused = broken(line, &format!("{field}source = \"{source}\" }}"));
        let expected = "my.toml: timing.erase.source: must name the figure that the value was fitted to, \
                        as in \"calibrated to 310 MB/s of the data sheet\"";
        assert_eq!(refused, expected, "{source}");
    }
    for source in
        ["calibrated, with range, to the 71 us of a U.2 drive", "calibrated to the data sheet's 310 MB/s"]
    {
        assert!(!is_calibrated_to_nothing(source), "{source}");
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
