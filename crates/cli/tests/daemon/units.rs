//! The units of systemd.

use std::path::{Path, PathBuf};
use std::process::Command;

const SERVICES: [&str; 2] = ["trimtab.service", "trimtab-trim.service"];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(name)
}

/// Settings that put a service among mounts of its own.
const OWN_MOUNTS: [&str; 16] = [
    "BindPaths",
    "BindReadOnlyPaths",
    "InaccessiblePaths",
    "MountFlags",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateTmp",
    "ProcSubset",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyPaths",
];

#[test]
fn units_have_no_private_mounts() {
    for name in SERVICES {
        let text = std::fs::read_to_string(unit(name)).unwrap();
        let settings = text.lines().filter(|line| !line.starts_with('#'));
        let keys: Vec<_> = settings.filter_map(|line| line.split_once('=')).map(|(key, _)| key).collect();
        assert!(keys.contains(&"CapabilityBoundingSet"));
        let found: Vec<_> = keys.iter().filter(|key| OWN_MOUNTS.contains(key)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn services_may_open_what_they_read_of_devices() {
    for name in SERVICES {
        let text = std::fs::read_to_string(unit(name)).unwrap();
        let allowed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("DeviceAllow=")).collect();
        // Without the second, no thin pools are seen, and no layers that block discards in the device mapper.
        assert_eq!(allowed, ["block-* r", "/dev/mapper/control r"], "{name}");
    }
}

#[test]
fn units_stay_hardened() {
    let analyze = |arguments: &[&str], name: &str| {
        Command::new("systemd-analyze").args(arguments).arg(unit(name)).output()
    };
    if analyze(&["--version"], SERVICES[0]).is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "a test that needs systemd-analyze cannot be skipped in CI"
        );
        eprintln!("skipped: it needs systemd-analyze");
        return;
    }
    // In tenths: 100 is a service that may do anything.
    for (name, most) in SERVICES.into_iter().zip(["37", "37"]) {
        let checked = analyze(&["security", "--offline=true", &format!("--threshold={most}")], name).unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}
