//! The claims of Datalight's paper, section by section.

use trimtab_core::document::reproduce::{Claim, FigureClock, Order};

use super::super::draft::{NEW_DRIVE, PER_COMMAND, SAME, claim, order};
use super::super::measured::{Cell, Measured, beyond, over};
use super::{DELETE, PAPER, SIZE};

/// Steps of the fragmentation test in the parts of the paper's figure 4.
const PROVISIONING: [&str; 2] = ["fill", "clear"];

const LATER: [&str; 4] = ["fragment", "delete", "after-delete", "write"];
/// Why the discards of `emmc` program pages of their own.
const JOURNAL: &str = "micron-emmc's journal of discards, which is calibrated to figure 4";

pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = benefits(measured);
    claims.extend(drawbacks(measured));
    claims.extend(impact(measured));
    claims.extend(balance(measured));
    claims.extend(erases(measured));
    claims
}

fn ssd<'a>(measured: &'a Measured, policy: &str) -> Cell<'a> {
    measured.ext4("ssd", policy)
}

fn benefits(measured: &Measured) -> Vec<Claim> {
    let (none, online) = (ssd(measured, "none"), ssd(measured, "online"));
    let model = |name: &str| measured.figure(name);
    let all = ["fill", "clear", "fragment", "delete", "after-delete", "write"];
    vec![
        claim(
            PAPER,
            "The Benefits of Discards, paragraph 4",
            "Garbage collection copies fewer live pages if the drive is told which ones are no longer used.",
        )
        .larger("pages copied: none over online", "pages", none.extra_pages(&all), online.extra_pages(&all))
        .judged(),
        claim(
            PAPER,
            "The Benefits of Discards, paragraph 4",
            "Discards reduce write amplification, and so the wear of the flash.",
        )
        .larger("write amplification: none over online", "", none.waf(), online.waf())
        .larger("erases: none over online", "erases", none.all_erases(), online.all_erases())
        .judged(),
        claim(
            PAPER,
            "The Benefits of Discards, paragraph 5",
            "Discards have little effect until the drive collects garbage: a short test on a formatted drive misleads, \
             a longer one does not.",
        )
        .alike(
            "short test on a new drive, without discards over with",
            "s",
            model("new kept s"),
            model("new discarded s"),
            SAME,
        )
        .follows(NEW_DRIVE)
        .larger(
            "long test on a used drive, without discards over with",
            "s",
            model("used kept s"),
            model("used discarded s"),
        )
        .judged(),
        claim(
            PAPER,
            "The Benefits of Discards, paragraph 3",
            "The more live pages there are, the longer garbage collection takes.",
        )
        .larger(
            "write amplification of random writes, drive full over half discarded",
            "",
            model("used kept waf"),
            model("used discarded waf"),
        )
        .judged(),
    ]
}

/// ext4's deletes no longer wait for discards: those reach the drive, and XFS shows what waiting costs.
fn background(measured: &Measured) -> Vec<Order> {
    let (none, online) = (ssd(measured, "none"), ssd(measured, "online"));
    let xfs = |policy| measured.run("ssd-xfs", "xfs", policy);
    vec![
        order(
            "time that discards keep the drive busy, over what the delete takes longer",
            "s",
            online.busy(&DELETE),
            beyond(online.time(&["delete"]), none.time(&["delete"])),
            2.0,
        ),
        order(
            "deleting on XFS, which waits: online over none",
            "s",
            xfs("online").time(&["delete"]),
            xfs("none").time(&["delete"]),
            10.0,
        ),
    ]
}

fn drawbacks(measured: &Measured) -> Vec<Claim> {
    let (none, online) = (ssd(measured, "none"), ssd(measured, "online"));
    let xfs = |policy| measured.run("ssd-xfs", "xfs", policy);
    let emmc = |policy| measured.ext4("emmc", policy);
    vec![
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 1",
            "Discards have to be enabled in every layer: ext4 on LVM on dm-crypt needs all three.",
        )
        .because("Not part of the fragmentation test; `trimtab doctor` examines such stacks.")
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 2",
            "Discards take time, and operations that issue them wait for it.",
        )
        .larger(
            "deleting on XFS: online over none",
            "s",
            xfs("online").time(&["delete"]),
            xfs("none").time(&["delete"]),
        )
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 2",
            "Discards often happen synchronously and block other requests.",
        )
        .larger(
            "longest read of others while files are deleted: online over none",
            "s",
            online.longest_read(&DELETE),
            none.longest_read(&DELETE),
        )
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 3",
            "A translation layer writes a record for each discard, so discards can write more to the flash.",
        )
        .larger(
            "pages beside the host's own in the deletes, eMMC: online over none",
            "pages",
            emmc("online").extra_pages(&DELETE),
            emmc("none").extra_pages(&DELETE),
        )
        .follows(JOURNAL)
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 3",
            "The drawbacks grow as discards get smaller, as with small or fragmented files.",
        )
        .larger(
            "discards of 64 MiB, in pieces of 64 KiB over 4 MiB",
            "s",
            measured.figure("small discards"),
            measured.figure("large discards"),
        )
        .follows(PER_COMMAND)
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 3",
            "Some storage arrays ignore discards of less than a megabyte.",
        )
        .because("No array is emulated; the profile's honoured_granularity has this behaviour for drives.")
        .judged(),
        claim(
            PAPER,
            "Potential Drawbacks with Discards, paragraph 4",
            "In some cases it is more efficient to turn discards off and to pay for garbage collection.",
        )
        .larger("waited on XFS: online over none", "s", xfs("online").waited(), xfs("none").waited())
        .judged(),
    ]
}

fn impact(measured: &Measured) -> Vec<Claim> {
    let (none, online) = (ssd(measured, "none"), ssd(measured, "online"));
    let xfs = |policy| measured.run("ssd-xfs", "xfs", policy);
    let fitrim = |fs| measured.run("fitrim", fs, "none");
    let (first, again) = (["trim-front", "trim-back"], ["trim-again"]);
    let delete = ["delete"];
    vec![
        claim(
            PAPER,
            "Demonstrating the Impact of Discards, paragraphs 3 and 4; figure 2",
            "On ext4, deleting the fragmented files takes 200 s without discards and over four hours with them, which \
             are issued for each extent, at once and synchronously.",
        )
        .figure(
            "deleting on ext4, online over none",
            "",
            14_400.0 / 200.0,
            over(online.time(&delete), none.time(&delete)),
        )
        .fitted("micron-m500it's cost of a command, 10 ms, is calibrated to this ratio")
        .larger("deleting on ext4: online over none", "s", online.time(&delete), none.time(&delete))
        .shown(
            "Since Linux 5.15 ext4 discards in a background worker that merges neighbours: the delete returns before \
             its discards, which the drive then works on. On XFS, which waits for them, the delete is slow.",
            background(measured),
        )
        .judged(),
        claim(
            PAPER,
            "Demonstrating the Impact of Discards, paragraphs 3 and 4; figure 2",
            "The write that follows reaches 609 KB/s without discards and nearly 18 MB/s with them.",
        )
        .also(PAPER, "Introduction, paragraph 1")
        .figure("rate of the write, online over none", "", 18e6 / 609e3, over(online.rate("write"), none.rate("write")))
        .larger("rate of the write: online over none", "B/s", online.rate("write"), none.rate("write"))
        .because(
            "The model's drive with stale data is slower by what garbage collection copies; a drop to 609 KB/s takes \
             firmware that copies far more than greedy garbage collection does, or a drive of other spare.",
        )
        .judged(),
        claim(
            PAPER,
            "Demonstrating the Impact of Discards, paragraph 4 (where discards are synchronous)",
            "With synchronous discards the delete takes 72 times as long.",
        )
        .figure(
            "deleting on XFS, online over none",
            "",
            14_400.0 / 200.0,
            over(xfs("online").time(&delete), xfs("none").time(&delete)),
        )
        .larger("deleting on XFS: online over none", "s", xfs("online").time(&delete), xfs("none").time(&delete))
        .because(
            "The ratio is that of a discard's cost to a delete's own cost. Here the file system waits for nothing \
             else, and a delete without discards is nearly free; on the paper's slow processor it took 200 s.",
        )
        .judged(),
        claim(
            PAPER,
            "Performance Impact vs. Use Case, paragraph 3",
            "An fstrim takes longer the more blocks are free.",
        )
        .larger(
            "fstrim of an empty file system, 768 MiB over 512 MiB",
            "s",
            measured.ext4("ssd-large", "batched").trim(Some(0)),
            ssd(measured, "batched").trim(Some(0)),
        )
        .judged(),
        claim(
            PAPER,
            "Performance Impact vs. Use Case, paragraph 3",
            "ext4 discards all free blocks for fstrim, whether they were discarded before or not.",
        )
        .at_least(
            "bytes that a second fstrim discards, over the first, ext4",
            "B",
            fitrim("ext4").discarded(&again),
            fitrim("ext4").discarded(&first),
            SAME,
        )
        .shown(
            "ext4 remembers in memory which groups were trimmed since their last free, and passes over them. XFS \
             remembers nothing and discards all again.",
            vec![
                order(
                    "bytes discarded on ext4, first over second fstrim",
                    "B",
                    fitrim("ext4").discarded(&first),
                    fitrim("ext4").discarded(&again),
                    2.0,
                ),
                order(
                    "bytes discarded on XFS, second over first fstrim",
                    "B",
                    fitrim("xfs").discarded(&again),
                    fitrim("xfs").discarded(&first),
                    0.9,
                ),
            ],
        )
        .judged(),
        claim(
            PAPER,
            "Performance Impact vs. Use Case, paragraph 3",
            "Between two runs of fstrim, blocks that wait for their discard are copied and worn.",
        )
        .larger(
            "erases of the large write, hourly fstrim over online",
            "erases",
            ssd(measured, "batched:1h").erases(&["write"]),
            online.erases(&["write"]),
        )
        .judged(),
    ]
}

fn balance(measured: &Measured) -> Vec<Claim> {
    let (none, online) = (ssd(measured, "none"), ssd(measured, "online"));
    let smart = ssd(measured, "smart");
    let delete = ["delete"];
    let gain = |setup| {
        let rate = |policy| measured.ext4(setup, policy).rate("write");
        over(rate("online"), rate("none"))
    };
    vec![
        claim(
            PAPER,
            "Reliance Nitro's Smart Discards, paragraph 4; figure 3",
            "With smart discards the delete takes 349 s, which is comparable to ext4 without discards (200 s).",
        )
        .figure("deleting, smart over none", "", 349.0 / 200.0, over(smart.time(&delete), none.time(&delete)))
        .at_least(
            "deleting: none over smart, at least 200 over 349",
            "s",
            none.time(&delete),
            smart.time(&delete),
            200.0 / 349.0,
        )
        .because("The service does not copy on write as Nitro does: its deletes are ext4's own.")
        .judged(),
        claim(
            PAPER,
            "Reliance Nitro's Smart Discards, paragraph 4; figure 3",
            "With smart discards the write reaches just over 18 MB/s, comparable to ext4 with discards.",
        )
        .figure("rate of the write, smart over online", "", 1.0, over(smart.rate("write"), online.rate("write")))
        .alike("rate of the write: smart over online", "B/s", smart.rate("write"), online.rate("write"), 0.9)
        .shown(
            "Smart is faster here: ext4's worker still discards while the write runs, since for each freed extent it \
             discards all that is free behind it, the same space again and again.",
            vec![
                order(
                    "bytes that ext4's discards name after the delete, over the size of the drive",
                    "B",
                    online.discarded(&["after-delete"]),
                    Some(SIZE.0 as f64),
                    10.0,
                ),
                order(
                    "time that discards keep the drive busy during the write: online over a tenth of the write",
                    "s",
                    online.busy(&["write"]),
                    online.time(&["write"]).map(|s| s / 10.0),
                    1.0,
                ),
            ],
        )
        .judged(),
        claim(
            PAPER,
            "Reliance Nitro's Smart Discards, paragraphs 2 and 3",
            "Smart discards have the best performance of the three.",
        )
        .larger("waited: none over smart", "s", none.waited(), smart.waited())
        .larger("waited: online over smart", "s", online.waited(), smart.waited())
        .judged(),
        claim(
            PAPER,
            "Further Impact, paragraph 1",
            "eMMC and SSD show very similar performance in this test.",
        )
        .by(FigureClock::None, "gain of the write by online, eMMC over SSD", "", 1.0, over(gain("emmc"), gain("ssd")))
        .larger("rate of the write on the eMMC: online over none", "B/s", measured.ext4("emmc", "online").rate("write"), measured.ext4("emmc", "none").rate("write"))
        .judged(),
    ]
}

fn erases(measured: &Measured) -> Vec<Claim> {
    let emmc = |policy| measured.ext4("emmc", policy);
    let all = |policy| emmc(policy).all_erases();
    let part = |policy, steps: &[&str]| emmc(policy).erases(steps);
    let apart = |steps: &[&str]| Some((part("none", steps)? - part("online", steps)?).abs());
    let places = "Further Impact, paragraph 3; figure 4";
    vec![
        claim(PAPER, "Further Impact, paragraph 2; figure 4", "The first fill takes about equally many erases everywhere.")
            .alike(
                "erases while filling: online over none",
                "erases",
                part("online", &PROVISIONING),
                part("none", &PROVISIONING),
                0.9,
            )
            .judged(),
        claim(
            PAPER,
            "Further Impact, paragraph 2; figure 4",
            "The differences are in writing the fragmented files, deleting them, and the write that follows.",
        )
        .larger(
            "difference of erases, none to online: later parts over the fill",
            "erases",
            apart(&LATER),
            apart(&PROVISIONING),
        )
        .judged(),
        claim(PAPER, places, "Without discards, each of the writes takes a substantial number of erases.")
            .larger("erases of the large write: none over online", "erases", part("none", &["write"]), part("online", &["write"]))
            .larger("erases of the fragmented files: none over online", "erases", part("none", &["fragment"]), part("online", &["fragment"]))
            .judged(),
        claim(
            PAPER,
            places,
            "Discards lower ext4's erases in all from 41 740 to 27 843.",
        )
        .number("erases, online over none", "", 27_843.0 / 41_740.0, over(all("online"), all("none")))
        .fitted("micron-emmc's spare and its journal of discards are calibrated to this ratio, 0.67")
        .judged(),
        claim(PAPER, places, "The deletes with discards take considerably more erases than expected.")
            .larger("erases of the deletes: online over none", "erases", part("online", &DELETE), part("none", &DELETE))
            .follows(JOURNAL)
            .judged(),
        claim(
            PAPER,
            places,
            "Smart discards take about as many erases as ext4 with discards while fragmented files are written.",
        )
        .alike(
            "erases while fragmented files are written: smart over online",
            "erases",
            part("smart", &["fragment"]),
            part("online", &["fragment"]),
            1.0 / 1.5,
        )
        .judged(),
        claim(
            PAPER,
            places,
            "Smart discards take the fewest erases in all: 22 199, against 41 740 without discards.",
        )
        .number("erases, smart over none", "", 22_199.0 / 41_740.0, over(all("smart"), all("none")))
        .larger("erases: none over smart", "erases", all("none"), all("smart"))
        .at_least("erases: online over smart", "erases", all("online"), all("smart"), 1.0)
        .because("The paper's text calls 22 199 of 41 740 47 %; it is 53 %, or 47 % less.")
        .judged(),
        claim(PAPER, "Summary, paragraph 1", "Smart discards are 25 % better than ext4 with discards in this test.")
            .number("erases, online over smart", "", 27_843.0 / 22_199.0, over(all("online"), all("smart")))
            .larger("erases: online over smart", "erases", all("online"), all("smart"))
            .because(
                "The paper compares two file systems, Reliance Nitro and ext4, which also allocate differently. Here both \
                 policies are of ext4.",
            )
            .judged(),
    ]
}
