//! Tests of the sender of discards.

use std::path::PathBuf;

use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{CronTrim, CrypttabLine, Layer, LayerKind, Setup, Timer};

use super::{YES, file_system, layer, mapped, nvme, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

#[test]
fn services_that_trim_are_named() {
    let fstab = |options: &str| Listed {
        source: PathBuf::from("UUID=1"),
        target: PathBuf::from("/mnt"),
        fstype: "ext4".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    };
    let ids = |options: &str, setup: &Setup| {
        let stack = row([file_system("/mnt", "ext4", options), nvme(YES)]);
        diagnose(&stack, setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("rw", &Setup::default()), ["nobody-trims"]);
    assert!(ids("rw,discard", &Setup::default()).is_empty());
    assert!(ids("rw", &timed()).is_empty());
    assert_eq!(ids("rw,discard", &timed()), ["double-work"]);
    let listed = |options| Setup { fstab: vec![fstab(options)], ..timed() };
    assert!(ids("rw", &listed("defaults")).is_empty());
    assert_eq!(ids("rw", &listed("defaults,X-fstrim.notrim")), ["fstrim-skips"]);
    let elsewhere = Listed { target: PathBuf::from("/other"), ..fstab("defaults") };
    let unlisted = Setup { fstab: vec![elsewhere], ..timed() };
    assert_eq!(ids("rw", &unlisted), ["not-in-fstab"]);
    let root = row([file_system("/", "ext4", "rw"), nvme(YES)]);
    assert!(diagnose(&root, &unlisted, ASSUMED_ERASE_BLOCK).findings.is_empty(), "/ needs no line");
    assert_eq!(ids("rw", &Setup { container: true, ..timed() }), ["timer-not-in-container"]);
    let off = Setup {
        timer: Some(Timer { enabled: false, active: false, last: None, next: None }),
        ..Setup::default()
    };
    assert_eq!(ids("rw", &off), ["nobody-trims"]);
}

#[test]
fn discards_allowed_until_the_next_start_are_reported() {
    let crypt = taking(YES, 512, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:1 0 1 allow_discards"));
    let stack = row([
        file_system("/mnt", "ext4", "rw"),
        Layer { label: Some("home".to_owned()), ..crypt },
        nvme(YES),
    ]);
    let ids = |options: &[&str], luks_allows: &[(String, bool)]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let line = CrypttabLine { name: "home".to_owned(), source: "/dev/sda1".to_owned(), options };
        let setup = Setup { crypttab: vec![line], luks_allows: luks_allows.to_vec(), ..timed() };
        diagnose(&stack, &setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&["luks"], &[]), ["luks-until-restart"]);
    assert!(ids(&["luks", "discard"], &[]).is_empty());
    assert!(ids(&["luks"], &[("dm-0".to_owned(), true)]).is_empty());
    assert_eq!(ids(&["luks"], &[("dm-0".to_owned(), false)]), ["luks-until-restart"]);
}

fn by_cron(words: &str) -> Setup {
    let words = words.split(' ').map(str::to_owned).collect();
    Setup {
        cron: vec![CronTrim { file: PathBuf::from("/etc/cron.weekly/fstrim"), words }],
        ..Setup::default()
    }
}

fn swap_line(source: &str, options: &str) -> Listed {
    Listed {
        source: PathBuf::from(source),
        target: PathBuf::from("none"),
        fstype: "swap".to_owned(),
        options: vec![options.to_owned()],
    }
}

#[test]
fn cron_and_trimtab_s_own_units_trim_too() {
    let examined = |options: &str, setup: &Setup| {
        let stack = row([file_system("/mnt", "ext4", options), nvme(YES)]);
        diagnose(&stack, setup, ASSUMED_ERASE_BLOCK)
    };
    let ids = |options: &str, setup: &Setup| {
        let findings = examined(options, setup).findings;
        findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    for covers in ["--all", "-v -a", "-av", "/mnt", "'/mnt/'", "-A", "--listed-in=/etc/fstab", "\"$mount\""] {
        assert!(ids("rw", &by_cron(covers)).is_empty(), "{covers}");
        assert_eq!(ids("rw,discard", &by_cron(covers)), ["double-work"], "{covers}");
    }
    for passes in ["/other", "-v", "--verbose /mnt2"] {
        assert_eq!(ids("rw", &by_cron(passes)), ["nobody-trims"], "{passes}");
    }
    let listed = Setup { fstab: vec![swap_line("/dev/sdb", "defaults")], ..by_cron("-A") };
    assert_eq!(ids("rw", &listed), ["nobody-trims"]);
    let said = examined("rw", &by_cron("-a")).layers[0].reason.clone();
    assert!(said.ends_with("; cron (/etc/cron.weekly/fstrim) trims it"), "{said}");

    let own = |name: &str| Setup { own_units: vec![name.to_owned()], ..Setup::default() };
    assert!(ids("rw", &own("trimtab.service")).is_empty());
    assert_eq!(ids("rw", &Setup { container: true, ..own("trimtab.service") }), ["timer-not-in-container"]);
    let weekly = own("trimtab-trim.timer");
    assert!(ids("rw", &weekly).is_empty());
    let found = examined("rw", &Setup { fstab: listed.fstab, ..weekly }).findings.remove(0);
    assert_eq!(found.id, "not-in-fstab");
    assert!(found.message.starts_with("trimtab-trim.timer passes /mnt by"), "{}", found.message);
    let both = Setup { timer: timed().timer, ..own("trimtab.service") };
    let found = examined("rw", &both).findings.remove(0);
    assert_eq!(found.message, "/mnt is discarded more than once: by fstrim.timer and by trimtab.service.");
    assert_eq!(found.fix.as_deref(), Some("systemctl disable --now fstrim.timer"));
}

#[test]
fn timers_that_stop_each_other_count_once() {
    let stack = row([file_system("/mnt", "ext4", "rw"), nvme(YES)]);
    let examined = |active: bool, enabled: bool, fstab: &[Listed]| {
        let setup = Setup {
            timer: Some(Timer { enabled, active, last: None, next: None }),
            own_units: vec!["trimtab-trim.timer".to_owned()],
            fstab: fstab.to_vec(),
            ..Setup::default()
        };
        diagnose(&stack, &setup, ASSUMED_ERASE_BLOCK)
    };
    for (active, enabled, expected) in [
        (true, true, "; fstrim.timer is on"),
        (true, false, "; fstrim.timer is on"),
        (false, true, "; trimtab-trim.timer trims it"),
        (false, false, "; trimtab-trim.timer trims it"),
    ] {
        let found = examined(active, enabled, &[]);
        let said = &found.layers[0].reason;
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        assert!(said.ends_with(expected) && said.matches(".timer").count() == 1, "{said}");
        // The one that runs is the one to be told of what it passes by.
        let found = examined(active, enabled, &[swap_line("/dev/sdb", "defaults")]).findings.remove(0);
        let who = if active { "fstrim.timer" } else { "trimtab-trim.timer" };
        assert!(found.message.starts_with(&format!("{who} passes /mnt by")), "{}", found.message);
    }
}

#[test]
fn fstab_options_of_a_swap_are_reported() {
    let told = |fstab: Vec<Listed>| {
        let stack = row([layer("/dev/nvme0n1", LayerKind::Swap), nvme(YES)]);
        let found = diagnose(&stack, &Setup { fstab, ..Setup::default() }, ASSUMED_ERASE_BLOCK);
        (found.layers[0].reason.clone(), found.findings.len())
    };
    let (said, findings) = told(vec![swap_line("UUID=1", "discard=pages")]);
    assert!(said.contains("enables discards of freed pages, in clusters"), "{said}");
    assert_eq!(findings, 0);
    let (said, findings) = told(vec![swap_line("UUID=1", "sw")]);
    assert!(said.contains("/etc/fstab enables no discards"), "{said}");
    assert_eq!(findings, 1);
}
