use std::collections::BTreeMap;

use trimtab_core::Bytes;
use trimtab_core::document::STATUS_SCHEMA;

use super::*;

/// Returns the status of a file system with figures in all fields.
fn fs(mount: &str, state: State) -> FileSystemStatus {
    FileSystemStatus {
        mount: mount.to_owned(),
        device: "/dev/vda1".to_owned(),
        fs: "ext4".to_owned(),
        policy: "smart".to_owned(),
        state,
        reason: None,
        unmanaged: None,
        unread: false,
        pending: Bytes(4096),
        pending_extents: 1,
        oldest_s: Some(1.5),
        max_age_s: Some(3600.0),
        last_trim: Some("1970-01-01T00:00:02Z".to_owned()),
        trimmed: Bytes(1 << 60),
        discards: 5,
        trim_s: 1.5,
        refusals: BTreeMap::from([("busy".to_owned(), 2), ("new".to_owned(), 3)]),
        latency_added_s: 0.0,
        decision: None,
        btrfs: None,
        untrimmed: None,
        uncounted: Vec::new(),
    }
}

fn document(file_systems: Vec<FileSystemStatus>) -> StatusDocument {
    StatusDocument {
        schema: STATUS_SCHEMA.to_owned(),
        version: "0".to_owned(),
        pid: 1,
        started: String::new(),
        at: String::new(),
        frees_unavailable: None,
        lost_events: 0,
        file_systems,
        pools: Vec::new(),
    }
}

#[test]
fn file_systems_keep_their_order() {
    let names: Vec<_> = (10..30).map(|number| format!("/{number}")).collect();
    let body = render(&document(names.iter().map(|name| fs(name, State::Waiting)).collect()), true);
    for (metric, rest) in [
        ("pending_bytes", "} 4096"),
        ("discarded_bytes_total", "} 1152921504606846976"),
        ("last_trim_timestamp_seconds", "} 2"),
        ("trim_seconds_total", "} 1.5"),
    ] {
        let encoded = body.lines().filter(|line| line.starts_with(&format!("trimtab_{metric}{{")));
        let series = |name: &String| {
            format!("trimtab_{metric}{{mountpoint=\"{name}\",device=\"/dev/vda1\",fstype=\"ext4\"{rest}")
        };
        assert_eq!(encoded.collect::<Vec<_>>(), names.iter().map(series).collect::<Vec<_>>());
    }
    assert_eq!(body.matches(",state=\"waiting\"} 1\n").count(), names.len(), "{body}");
    assert_eq!(body.matches(",reason=\"busy\"} 2\n").count(), names.len(), "{body}");
    assert_eq!(body.matches(",reason=\"io_error\"} 0\n").count(), names.len(), "{body}");
    assert_eq!(body.matches(",reason=\"new\"} 3\n").count(), names.len(), "{body}");
}

#[test]
fn labels_are_escaped() {
    let body = render(&document(vec![fs("/a\"b\\c\nd", State::Idle)]), true);
    assert!(body.contains("trimtab_pending_bytes{mountpoint=\"/a\\\"b\\\\c\\nd\",device="), "{body}");
}

/// The machine of `example.prom`, a file that tests of the dashboard serve to Prometheus too.
fn example() -> StatusDocument {
    let own = BtrfsDiscards {
        discardable: Bytes(8192),
        discardable_extents: 2,
        discarded_extents: Bytes(5 << 20),
        discarded_bitmaps: Bytes(6 << 10),
        saved: Bytes(7 << 10),
    };
    let pool = ThinPoolStatus {
        device: "/dev/dm-2".to_owned(),
        name: "vg/pool".to_owned(),
        used: Bytes(900 << 20),
        size: Bytes(1 << 30),
        metadata_used: Bytes(48 << 10),
        metadata_size: Bytes(4 << 20),
    };
    let off = FileSystemStatus { unmanaged: Some("no_service".to_owned()), ..fs("/", State::Off) };
    let blocked = FileSystemStatus { unmanaged: Some("blocked".to_owned()), ..fs("/srv", State::Off) };
    let btrfs = FileSystemStatus {
        fs: "btrfs".to_owned(),
        btrfs: Some(own),
        ..FileSystemStatus { mount: "/home".to_owned(), ..off.clone() }
    };
    StatusDocument { pools: vec![pool], ..document(vec![off, btrfs, blocked]) }
}

#[test]
fn figures_of_a_service_are_left_out_where_none_runs() {
    assert_eq!(render(&example(), false), include_str!("example.prom"));
}
