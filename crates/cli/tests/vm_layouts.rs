//! Holds what selects file systems to each of them once, on Debian's kernel 6.12: `vm/layouts` mounts them as people
//! have them.

mod guest;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trimtab_core::document::doctor::Target;
use trimtab_core::document::status::State;
use trimtab_core::document::trim::Outcome;
use trimtab_core::document::{DoctorDocument, StatusDocument, TrimDocument};
use trimtab_core::verdict::Verdict;

use guest::{ran, run};

/// The outcome of a command that prints JSON.
#[derive(Debug, Deserialize)]
struct Printed {
    status: u8,
    said: String,
    /// How often the automount point was woken until its end.
    woken: u32,
    json: Value,
}

/// The commands, by the names that vm/layouts gives them.
struct Layouts(BTreeMap<String, Printed>);

impl Layouts {
    /// Returns what `name` printed, which has to be all that it said.
    fn of<T: DeserializeOwned>(&self, name: &str, status: u8) -> T {
        let printed = &self.0[name];
        assert_eq!((printed.status, printed.said.as_str()), (status, ""), "{name}: {printed:?}");
        serde_json::from_value(printed.json.clone()).unwrap()
    }

    /// Returns the targets of a trim and their outcome.
    fn trimmed(&self, name: &str) -> Vec<(String, Outcome)> {
        let document: TrimDocument = self.of(name, 0);
        document.targets.into_iter().map(|target| (target.target, target.outcome)).collect()
    }

    /// Returns the targets of a doctor and those of their findings that say who trims them.
    fn trimmers(&self, name: &str, status: u8) -> Vec<(String, Vec<String>)> {
        let document: DoctorDocument = self.of(name, status);
        assert!(document.left_out.is_empty(), "{name}: {:?}", document.left_out);
        document.targets.iter().map(|target| (target.asked.clone(), ids(target))).collect()
    }
}

/// The findings about who trims a target.
fn ids(target: &Target) -> Vec<String> {
    const TRIMMERS: [&str; 5] =
        ["nobody-trims", "not-in-fstab", "fstrim-read-only", "fstrim-skips", "double-work"];
    let ids = target.findings.iter().map(|finding| finding.id.as_str());
    ids.filter(|id| TRIMMERS.contains(id)).map(str::to_owned).collect()
}

fn at(places: &[&str], outcome: Outcome) -> Vec<(String, Outcome)> {
    places.iter().map(|place| (format!("/run/l/{place}"), outcome)).collect()
}

fn found(places: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let own = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    places.iter().map(|(place, ids)| (format!("/run/l/{place}"), own(ids))).collect()
}

#[test]
fn every_file_system_is_selected_once() {
    let Some(reference) = ran("vm/util-linux", &[]) else { return };
    let reference = String::from_utf8(reference.stdout).unwrap();
    let disks =
        ["nvme:512M", "virtio-blk:512M", "virtio-blk:512M", "nvme:512M", "virtio-scsi:300M", "nvme:300M"];
    let mut arguments: Vec<_> = disks.iter().flat_map(|disk| ["-d", disk]).collect();
    arguments.extend(["-t", "900", "vm/layouts", env!("CARGO_BIN_EXE_trimtab"), reference.trim()]);
    let Some(output) = run(&arguments) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let parsed = |line: &str| {
        let (name, json) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        (name.to_owned(), serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {line}")))
    };
    let layouts = Layouts(stdout.lines().map(parsed).collect());
    selections(&layouts);
    doctors(&layouts);
    service(&layouts);
    let woken: Vec<_> =
        layouts.0.iter().filter(|(name, printed)| *name != "fstrim" && printed.woken > 0).collect();
    assert!(woken.is_empty(), "the automount point is woken: {woken:?}");
}

/// Checks the file systems that trims select.
fn selections(layouts: &Layouts) {
    let all = ["etc", "b", "vault", "globalmount", "home", "esp"];
    assert_eq!(layouts.trimmed("all"), at(&all, Outcome::Planned));
    assert_eq!(layouts.trimmed("fstab"), at(&["etc", "b"], Outcome::Planned));
    assert_eq!(layouts.trimmed("trimmed"), at(&all, Outcome::Done));
    let document: TrimDocument = layouts.of("trimmed", 0);
    for target in document.targets {
        let (sent, plan) = (target.sent.unwrap(), target.plan.unwrap());
        let size = match target.target.strip_prefix("/run/l/").unwrap() {
            "b" => 1 << 30,
            "globalmount" | "esp" => 300 << 20,
            // A LUKS header takes 16 MiB of its file.
            "home" => 84 << 20,
            _ => 512 << 20,
        };
        let bytes = sent.bytes.0;
        assert!(bytes > size / 2 && bytes <= size, "{}: {bytes} on {:?}", target.target, plan.devices);
    }
}

/// Checks the findings of the doctor without a timer, with one, and with the service.
fn doctors(layouts: &Layouts) {
    let nobody: &[&str] = &["nobody-trims"];
    let others = [("fixed", &[] as &[&str]), ("zoned", &[])];
    let trimmable = |findings: [&'static [&'static str]; 3]| {
        let [etc, unlisted, esp] = findings;
        let unlisted = ["vault", "globalmount", "home"].map(|place| (place, unlisted));
        found(&[&[("etc", etc), ("b", &[])], &unlisted[..], &[("esp", esp)], &others[..]].concat())
    };
    assert_eq!(layouts.trimmers("doctor-idle", 4), trimmable([nobody; 3]));
    let timed = layouts.trimmers("doctor-timed", 4);
    assert_eq!(timed, trimmable([&["fstrim-read-only"], &["not-in-fstab"], &["fstrim-skips"]]));
    // It says of what fstrim.service passes by that it does, and of nothing else.
    let lines: Vec<String> = layouts.of("fstrim", 0);
    let listed: BTreeSet<_> = lines.iter().filter_map(|line| line.split(':').next()).collect();
    let trimmable =
        timed.iter().filter(|(target, _)| !target.ends_with("fixed") && !target.ends_with("zoned"));
    let said: BTreeSet<_> =
        trimmable.filter(|(_, ids)| ids.is_empty()).map(|(target, _)| target.as_str()).collect();
    assert_eq!(said, listed);

    let document: DoctorDocument = layouts.of("doctor-named", 4);
    let [sysroot, a, root, merged, snap, pod, plain, remote] = document.targets.as_slice() else {
        panic!("{document:#?}")
    };
    assert_eq!([ids(sysroot), ids(merged), ids(pod)], [nobody; 3]);
    for target in [sysroot, merged] {
        let fix = target.findings[0].fix.as_deref().unwrap_or_default();
        assert!(
            fix.starts_with("fstrim /run/l/etc ") || fix.starts_with("fstrim /run/l/var "),
            "{target:#?}"
        );
        assert_eq!(target.verdict, Verdict::Reaches);
    }
    // btrfs discards by itself on these disks; nothing is freed on the others.
    for target in [a, root, snap, plain, remote] {
        assert!(ids(target).is_empty(), "{target:#?}");
    }
    assert_eq!([plain.verdict, remote.verdict], [Verdict::Unknown; 2]);
}

/// Checks the file systems that the service manages, and the findings of the doctor beside it.
fn service(layouts: &Layouts) {
    let status: StatusDocument = layouts.of("status", 0);
    let states: BTreeMap<_, _> = status.file_systems.iter().map(|fs| (fs.mount.as_str(), fs.state)).collect();
    let known: Vec<_> = states.keys().copied().collect();
    let all = ["b", "esp", "etc", "fixed", "globalmount", "home", "vault", "zoned"]
        .map(|place| format!("/run/l/{place}"));
    assert_eq!(known, all);
    for place in ["etc", "vault", "globalmount", "home"] {
        let state = states[format!("/run/l/{place}").as_str()];
        assert!(!matches!(state, State::Off | State::Steered | State::Failing), "{place}: {state:?}");
    }
    assert_eq!(states["/run/l/b"], State::Steered);
    assert_eq!(
        ["esp", "fixed", "zoned"].map(|place| states[format!("/run/l/{place}").as_str()]),
        [State::Off; 3]
    );
    let esp = status.file_systems.iter().find(|fs| fs.mount == "/run/l/esp").unwrap();
    assert_eq!(esp.unmanaged.as_deref(), Some("excluded"), "its line has X-fstrim.notrim");
    let served = layouts.trimmers("doctor-served", 4);
    let found: Vec<_> = served.iter().filter(|(_, ids)| !ids.is_empty()).collect();
    assert_eq!(found, [&("/run/l/esp".to_owned(), vec!["fstrim-skips".to_owned()])]);
}
