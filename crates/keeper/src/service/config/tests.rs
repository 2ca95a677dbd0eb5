//! Valid and invalid configurations.

use proptest::prelude::proptest;

use super::*;

const ALL: &str = r#"
[metrics]
address = "[::1]:9718"

[defaults]
policy = "smart"
max_latency_added = "2ms"
max_age = "1d"

[mount."/home"]
policy = "batched:1w"
max_busy_share = 0.25
idle_only = true

[mount."/srv"]
profile = "ocz-vertex-le"

[drive."/dev/vda"]
profile = "nvme-tlc"
"#;

fn at(path: &str) -> Vec<PathBuf> {
    vec![PathBuf::from(path)]
}

#[test]
fn mount_settings_fall_back_to_defaults() {
    let config = Config::parse(ALL, "test").unwrap();
    assert_eq!(config.metrics(), Some("[::1]:9718".parse().unwrap()));
    let home = config.settings(&at("/home"), Some(Path::new("/dev/vda")));
    assert_eq!(home.policy, Some(ServicePolicy::Batched(WEEK)));
    assert!(home.is_by_name);
    let goals = Goals {
        max_latency_added: Duration::from_millis(2),
        max_busy_share: 0.25,
        idle_only: true,
        max_age: Duration::from_secs(24 * 3600),
    };
    assert_eq!(home.goals, goals);
    assert_eq!(home.profile.map(|profile| profile.name), Some("nvme-tlc".to_owned()));
    let srv = config.settings(&at("/srv"), Some(Path::new("/dev/vda")));
    assert_eq!((srv.policy, srv.is_by_name), (Some(ServicePolicy::Smart), false));
    assert_eq!(srv.profile.map(|profile| profile.name), Some("ocz-vertex-le".to_owned()));
    // If it is mounted twice, settings of the second mount point count too.
    let twice = config.settings(&[at("/x"), at("/home")].concat(), None);
    assert_eq!(twice.policy, Some(ServicePolicy::Batched(WEEK)));
}

#[test]
fn empty_configuration_has_defaults() {
    let config = Config::parse("", "test").unwrap();
    assert_eq!(config, Config::default());
    let settings = config.settings(&at("/"), None);
    assert_eq!((settings.policy, settings.profile), (None, None));
    assert_eq!(settings.goals, Goals::default());
}

#[test]
fn errors_are_one_line_with_the_field() {
    for (text, message) in [
        ("[mount", "t: line 1: "),
        ("\n\nx = ", "t: line 3: "),
        ("polcy = 1", "t: polcy: unknown field `polcy`"),
        ("[mount.\"/a\"]\nage = 1", "t: mount./a.age: unknown field `age`"),
        (
            "[defaults]\npolicy = \"online\"",
            "t: defaults.policy: \"online\" is not a policy of the service; write smart, none, batched, \
                 or batched:INTERVAL with an interval from a minute to ten years (batched:1w)",
        ),
        ("[defaults]\npolicy = \"batched:1s\"", "t: defaults.policy: \"batched:1s\" is not a policy"),
        (
            "[defaults]\nmax_age = \"0s\"",
            "t: defaults.max_age: \"0s\" is not a time above 0 and up to ten years; write it like 1ms, 30m or 1d",
        ),
        (
            "[defaults]\nmax_age = \"11y\"",
            "t: defaults.max_age: \"11y\" is not a time above 0 and up to ten years",
        ),
        (
            "[defaults]\nmax_age = 3600",
            "t: defaults.max_age: \"3600\" is not a time above 0 and up to ten years",
        ),
        ("[defaults]\npolicy = 3", "t: defaults.policy: \"3\" is not a policy of the service"),
        (
            "[mount]\n\"/home\" = \"smart\"",
            "t: mount./home: invalid type: string \"smart\", expected a table of settings",
        ),
        ("defaults = 3", "t: defaults: invalid type: integer `3`, expected a table of settings"),
        ("[defaults]\nmax_latency_added = \"18446744073709551615s\"", "t: defaults.max_latency_added: "),
        ("[defaults]\npolicy = \"batched:18446744073709551615s\"", "t: defaults.policy: "),
        ("[defaults]\nmax_busy_share = 1.5", "t: defaults.max_busy_share: 1.5 is not a share of the time"),
        ("[defaults]\nmax_busy_share = nan", "t: defaults.max_busy_share: NaN is not a share of the time"),
        ("[metrics]\naddress = \"0.0.0.0:1\"", "t: metrics.address: 0.0.0.0:1 can be reached from other"),
        ("[metrics]\naddress = \"localhost\"", "t: metrics.address: \"localhost\" is not an IP address"),
        ("[mount.\"home\"]", "t: mount.\"home\": a mount point or a device needs an absolute path"),
        ("[defaults]\nprofile = \"fast\"", "t: defaults.profile"),
        ("[drive.\"/dev/x\"]\nprofile = \"/nowhere.toml\"", "t: drive.\"/dev/x\".profile"),
        ("[drive.\"/dev/x\"]", "t: drive./dev/x: missing field `profile`"),
    ] {
        let said = Config::parse(text, "t").unwrap_err().to_string();
        assert!(said.starts_with(message), "{text:?}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn intervals_are_shown_in_common_units() {
    for text in ["smart", "none", "batched:1w", "batched:2d", "batched:36h", "batched:90m"] {
        let shown = text.parse::<ServicePolicy>().unwrap().to_string();
        assert_eq!(shown, text.replace("36h", "1day12h").replace("90m", "1h30m"));
    }
    assert_eq!("batched".parse(), Ok(ServicePolicy::Batched(WEEK)));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_in_one_line(
        text in r#"(\[?(metrics|defaults|mount|drive)(\."?/?[a-z]{0,3}"?)?\]?|(policy|profile|address|max_age) ?= ?["0-9a-z:.]{0,12}|[ -~\n])*"#,
    ) {
        if let Err(error) = Config::parse(&text, "t") {
            proptest::prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn policies_round_trip(minutes in 1..100_000_u64) {
        let policy = ServicePolicy::Batched(Duration::from_secs(minutes * 60));
        proptest::prop_assert_eq!(policy.to_string().parse(), Ok(policy));
    }
}
