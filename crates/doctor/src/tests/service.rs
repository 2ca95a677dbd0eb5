//! Tests of the sender of discards.

use std::path::PathBuf;

use trimtab_core::verdict::{Finding, Severity, Verdict};
use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{CronTrim, CrypttabLine, FstrimService, Layer, LayerKind, Setup, Stack, Timer};

use super::{YES, file_system, layer, mapped, nvme, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// The line of /mnt in /etc/fstab.
fn fstab(options: &str) -> Listed {
    Listed {
        source: PathBuf::from("UUID=1"),
        target: PathBuf::from("/mnt"),
        fstype: "ext4".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    }
}

#[test]
fn services_that_trim_are_named() {
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

/// Timers and cron that trim an NTFS3, whose trims lose data.
#[test]
fn trims_that_lose_data_are_reported() {
    let found = |options: &str, below: Vec<Layer>, setup: &Setup| {
        let stack = row([vec![file_system("/mnt", "ntfs3", options)], below].concat());
        diagnose(&stack, setup, ASSUMED_ERASE_BLOCK).findings
    };
    let on_nvme = |options: &str, setup: &Setup| found(options, vec![nvme(YES)], setup);
    let listed = |options| Setup { fstab: vec![fstab(options)], ..timed() };
    let [finding] = &on_nvme("rw,discard", &listed("discard"))[..] else { panic!() };
    assert_eq!((finding.id.as_str(), finding.severity), ("trim-loses-data", Severity::Critical));
    assert!(finding.fix.as_ref().unwrap().contains("add X-fstrim.notrim") && finding.cost.is_none());
    assert!(on_nvme("rw,discard", &listed("discard,X-fstrim.notrim")).is_empty(), "what the fix says");
    assert!(on_nvme("rw,discard", &Setup::default()).is_empty(), "nobody trims it");

    let ids = |findings: &[Finding]| findings.iter().map(|found| found.id.clone()).collect::<Vec<_>>();
    // What would let more discards through has to wait.
    let crypt = taking(0, 512, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:1 0"));
    let closed = found("rw,discard", vec![crypt, nvme(YES)], &listed("discard"));
    assert_eq!(ids(&closed), ["trim-loses-data", "luks-no-discards"]);
    assert!(closed[0].fix.is_some() && closed[1].fix.is_none(), "{closed:#?}");
    let unasked = on_nvme("rw", &listed("defaults"));
    assert_eq!(ids(&unasked), ["ntfs3-needs-discard", "trim-loses-data"]);
    assert!(unasked[0].fix.is_none() && unasked[1].message.contains("once it is mounted"), "{unasked:#?}");

    // All who trim it are named, and trimtab, which does not, is not.
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let file = PathBuf::from("/etc/cron.weekly/trim");
    let cron = |is_own| vec![CronTrim { file: file.clone(), is_own, words: words(&["-a"]) }];
    let service = |command: &[&str]| FstrimService {
        commands: vec![words(command)],
        result: "success".to_owned(),
        hides_homes: false,
    };
    let all = Setup {
        cron: cron(false),
        fstrim_service: Some(service(&["/sbin/fstrim", "--all"])),
        ..listed("X-fstrim.notrim")
    };
    let [finding] = &on_nvme("rw,discard", &all)[..] else { panic!() };
    assert_eq!(
        finding.fix.as_deref().unwrap().lines().collect::<Vec<_>>(),
        [
            "systemctl disable --now fstrim.timer",
            "chmod -x /etc/cron.weekly/trim   # or take out of it what trims"
        ]
    );
    assert!(finding.cost.is_some() && finding.message.contains("fstrim.timer and cron"), "{finding:?}");
    let own = Setup {
        cron: cron(true),
        fstrim_service: Some(service(&["/usr/lib/trimtab/fstrim", "--listed-in", "/etc/fstab"])),
        ..listed("discard")
    };
    assert!(on_nvme("rw,discard", &own).is_empty());
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
        let line = CrypttabLine {
            name: "home".to_owned(),
            source: "/dev/sda1".to_owned(),
            options,
            unread: Vec::new(),
        };
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
        cron: vec![CronTrim { file: PathBuf::from("/etc/cron.weekly/fstrim"), is_own: false, words }],
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
    // Cron's command goes by the lists, whatever fstrim.service was told to trim.
    let commands = vec![vec!["/sbin/fstrim".to_owned(), "/srv".to_owned()]];
    let fstrim_service = Some(FstrimService { commands, result: "success".to_owned(), hides_homes: false });
    assert!(ids("rw", &Setup { fstrim_service, ..by_cron("-A") }).is_empty());
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

/// An ext4 on a dm-crypt device named `home` that was opened without discards, by the maker with this word.
fn encrypted(maker: &str, options: &str) -> Stack {
    let crypt = mapped("dm-0", "crypt", &format!("aes-xts-plain64 - 0 8:1 0{options}"));
    let max = if options.is_empty() { 0 } else { YES };
    let crypt = Layer {
        label: Some("home".to_owned()),
        subsystem: Some(maker.to_owned()).filter(|maker| !maker.is_empty()),
        ..taking(max, 512, crypt)
    };
    row([file_system("/mnt", "ext4", "rw"), crypt, nvme(YES)])
}

fn only(stack: &Stack, setup: &Setup, id: &str) -> Finding {
    let findings = diagnose(stack, setup, ASSUMED_ERASE_BLOCK).findings;
    findings.into_iter().find(|finding| finding.id == id).unwrap()
}

#[test]
fn maker_of_an_encrypted_device_decides_the_fix() {
    let fix = |maker: &str| only(&encrypted(maker, ""), &timed(), "luks-no-discards").fix.unwrap();
    assert_eq!(fix("CRYPT-LUKS2"), "cryptsetup refresh --allow-discards --persistent home");
    assert!(fix("CRYPT-LUKS1").starts_with("cryptsetup refresh --allow-discards home   # and add discard"));
    for (maker, kind) in [
        ("CRYPT-PLAIN", "plain"),
        ("CRYPT-BITLK", "bitlk"),
        ("CRYPT-TCRYPT", "tcrypt"),
        ("CRYPT-FVAULT2", "fvault2"),
    ] {
        let start = format!("cryptsetup close home && cryptsetup open --type {kind} --allow-discards ");
        assert!(fix(maker).starts_with(&start), "{}", fix(maker));
    }
    // VeraCrypt's devices have no name of a maker, and cryptsetup doesn't manage them.
    let unnamed = fix("");
    assert!(unnamed.starts_with("dmsetup table --showkeys home | awk ") && !unnamed.contains("cryptsetup"));
}

#[test]
fn fix_that_lasts_depends_on_the_header() {
    let line = |options: &[&str], unread: &[&str]| {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (name, source) = ("home".to_owned(), "/dev/sda1".to_owned());
        let line = CrypttabLine { name, source, options: own(options), unread: own(unread) };
        Setup { crypttab: vec![line], ..timed() }
    };
    let luks1 = encrypted("CRYPT-LUKS1", " 1 allow_discards");
    let found = only(&luks1, &line(&["luks"], &["discard"]), "luks-until-restart");
    let fix = found.fix.unwrap();
    assert!(fix.contains("/etc/crypttab") && !fix.contains("--persistent"), "{fix}");
    assert!(found.message.contains("a blank stands before discard"), "{}", found.message);
    let luks2 = encrypted("CRYPT-LUKS2", " 1 allow_discards");
    let found = only(&luks2, &line(&["luks"], &[]), "luks-until-restart");
    assert!(found.fix.unwrap().ends_with("--persistent home"));
    // The opener did not see the line.
    let ignored = only(&encrypted("CRYPT-LUKS2", ""), &line(&["luks", "discard"], &[]), "luks-no-discards");
    assert!(ignored.message.contains("Its line in /etc/crypttab allows them"), "{}", ignored.message);
    assert!(ignored.fix.unwrap().contains("update-initramfs -u"));
}

#[test]
fn fstrim_service_is_read() {
    let stack = row([file_system("/mnt", "ext4", "rw"), nvme(YES)]);
    let runs = |command: &str, fstab: Vec<Listed>| {
        let commands = vec![command.split(' ').map(str::to_owned).collect()];
        let service = FstrimService { commands, result: "success".to_owned(), hides_homes: false };
        Setup { fstrim_service: Some(service), fstab, ..timed() }
    };
    let ids = |command: &str, fstab: Vec<Listed>| {
        let findings = diagnose(&stack, &runs(command, fstab), ASSUMED_ERASE_BLOCK).findings;
        findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    let other = || vec![swap_line("/dev/sdb", "defaults")];
    let default = "/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo --verbose --quiet-unsupported";
    assert_eq!(ids(default, other()), ["not-in-fstab"]);
    assert!(ids(default, Vec::new()).is_empty(), "all mounts count");
    // What the finding's fix makes of it.
    assert!(ids("/sbin/fstrim --all --verbose --quiet-unsupported", other()).is_empty());
    assert!(ids("/sbin/fstrim -v /mnt", other()).is_empty());
    assert_eq!(ids("/sbin/fstrim -v /srv", other()), ["not-in-fstab"]);
    assert_eq!(ids("/sbin/fstrim -Av", Vec::new()), ["fstrim-trims-nothing"]);
    assert!(ids("/sbin/fstrim --all -v", Vec::new()).is_empty(), "what its fix makes of it");
    assert_eq!(ids("/sbin/fstrim -Av", other()), ["not-in-fstab"]);
    assert!(ids("/usr/local/bin/trim-all", other()).is_empty(), "a script may trim anything");
}

#[test]
fn failing_fstrim_service_is_a_finding() {
    let machine = |result: &str, timer: Setup| {
        let service = FstrimService { commands: Vec::new(), result: result.to_owned(), hides_homes: false };
        let findings =
            super::super::service::of_the_machine(&Setup { fstrim_service: Some(service), ..timer });
        findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    assert_eq!(
        machine("exit-code", timed()),
        ["fstrim.service failed when fstrim.timer last started it (exit-code)."]
    );
    assert!(machine("success", timed()).is_empty());
    assert!(machine("exit-code", Setup::default()).is_empty(), "nothing starts it");
}

#[test]
fn kinds_of_senders_are_told_apart() {
    let ids = |stack: &Stack, setup: &Setup| {
        let findings = diagnose(stack, setup, ASSUMED_ERASE_BLOCK).findings;
        findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    let btrfs = |options: &str| row([file_system("/mnt", "btrfs", options), nvme(YES)]);
    assert!(ids(&btrfs("rw,discard=async"), &timed()).is_empty());
    assert_eq!(ids(&btrfs("rw,discard"), &timed()), ["double-work"]);
    let zram = taking(YES, 4096, layer("zram0", LayerKind::Zram));
    let memory = row([file_system("/mnt", "ext4", "rw"), zram]);
    let found = only(&memory, &Setup::default(), "nobody-trims");
    assert!(found.fix.unwrap().starts_with("mount -o remount,discard /mnt "));
}

#[test]
fn online_discards_smaller_than_the_unit_below_are_a_finding() {
    let ids = |chunk: u64, options: &str, setup: &Setup| {
        let pool = mapped("dm-1", "thin-pool", &format!("254:2 254:3 {} 0 0", chunk / 512));
        let stack = row([file_system("/mnt", "xfs", options), taking(YES, chunk, pool), nvme(YES)]);
        let findings = diagnose(&stack, setup, ASSUMED_ERASE_BLOCK).findings;
        findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(256 << 10, "rw,discard", &Setup::default()), ["online-only"]);
    assert!(ids(4096, "rw,discard", &Setup::default()).is_empty());
    assert_eq!(ids(256 << 10, "rw", &Setup::default()), ["nobody-trims"]);
    assert!(ids(256 << 10, "rw,discard", &timed()).is_empty(), "what the timer sends completes it");
}

#[test]
fn proven_block_leaves_no_advice_to_send_more() {
    use trimtab_core::document::doctor::Canary;
    let stack = row([file_system("/mnt", "ext4", "rw"), nvme(YES)]);
    let mut target = diagnose(&stack, &Setup::default(), ASSUMED_ERASE_BLOCK);
    assert_eq!(target.findings[0].id, "nobody-trims");
    let (verdict, reason) = (Verdict::Blocked, "ext4 at /mnt handed nothing on".to_owned());
    let canary = Canary { sent_bytes: trimtab_core::Bytes::MIB, seen: Vec::new(), verdict, reason };
    crate::prove(&mut target, canary);
    let ids: Vec<_> = target.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids, ["canary-disagrees"]);
}
