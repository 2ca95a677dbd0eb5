//! The claims of P. Nagel's post, paragraph by paragraph, and of the comments on it.

use trimtab_core::document::reproduce::{Claim, FigureClock, Order};

use super::super::draft::{Draft, MORE, SAME, claim, order};
use super::super::measured::{Cell, Measured, beyond, over, plus};
use super::{BLOG, DISCARDS, POST, SIZE, scale};

/// The bytes of the tree here, in MB.
const TREE_MB: f64 = 493.0;
/// The steps of a delete that somebody waits for.
const DELETE: [&str; 2] = ["delete", "sync-deleted"];
/// Why the Vertex LE is slower at discards than the Corsair.
const COMMANDS: &str = "the profiles' cost of a command, 83 ms by this post and 80 us by Purdea's 100 times";
/// The steps that write the tree.
const UNPACK: [&str; 2] = ["unpack", "sync-unpacked"];

pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = post(measured);
    claims.extend(advice(measured));
    claims.extend(policies(measured));
    claims.extend(other_drives(measured));
    claims.extend(script(measured));
    claims
}

/// A claim of the post, which both documents have.
fn both(paragraph: &str, says: &str) -> Draft {
    claim(POST, paragraph, says).also(BLOG, paragraph)
}

fn tree<'a>(measured: &'a Measured, policy: &str) -> Cell<'a> {
    measured.ext4("tree", policy)
}

/// Since Linux 5.15 ext4's sync does not wait for discards: the drive is busy afterwards, and XFS in `on_xfs` shows the
/// wait.
fn background(measured: &Measured, setup: &str, on_xfs: &str) -> Vec<Order> {
    let (none, online) = (measured.ext4(setup, "none"), measured.ext4(setup, "online"));
    let xfs = |policy| measured.run(on_xfs, "xfs", policy);
    vec![
        order(
            "time that discards keep the drive busy, over what delete and sync take longer, ext4",
            "s",
            online.busy(&DISCARDS),
            beyond(online.time(&DELETE), none.time(&DELETE)),
            2.0,
        ),
        order(
            "delete and sync on XFS, which waits: online over none",
            "s",
            xfs("online").time(&DELETE),
            xfs("none").time(&DELETE),
            1.5,
        ),
    ]
}

const BACKGROUND: &str = "Since Linux 5.15 ext4 discards in a background worker: sync returns before the discards, which \
                          then keep the drive busy. On XFS, which waits for them, delete and sync take longer.";

fn post(measured: &Measured) -> Vec<Claim> {
    let (none, online) = (tree(measured, "none"), tree(measured, "online"));
    let rate = |run: Cell| Some(TREE_MB / (run.time(&UNPACK)? * scale()));
    let sync = ["sync-deleted"];
    vec![
        both("paragraph 1", "The drive is rated at 235 MB/s of sustained writes and 270 MB/s of reads.")
            .by(FigureClock::None, "rated writes", "MB/s", 235.0, None)
            .fitted("ocz-vertex-le's link and dies")
            .by(FigureClock::None, "rated reads", "MB/s", 270.0, None)
            .fitted("ocz-vertex-le's link")
            .judged(),
        both("paragraphs 3 and 4", "Writes are fast only while the free space is trimmed.")
            .larger(
                "random writes on a full drive, without discards over with",
                "s",
                measured.figure("kept"),
                measured.figure("discarded"),
            )
            .judged(),
        both(
            "paragraph 4, figures",
            "Unpacking and syncing the tree takes as long with discards (2.80 s, 176 MB/s) as without (2.87 s, 172 MB/s).",
        )
        .figure("rate, none", "MB/s", 172.0, rate(none))
        .figure("rate, online", "MB/s", 176.0, rate(online))
        .alike("unpack and sync: online over none", "s", online.time(&UNPACK), none.time(&UNPACK), 0.9)
        .because(
            "The guest's processor does one instruction a nanosecond, which is slower than the original's at making \
             files; here a file is also written with verifiable contents.",
        )
        .judged(),
        both(
            "paragraph 4, figures",
            "The delete itself, before the sync, takes as long with discards (0.48 s) as without (0.47 s).",
        )
        .figure("delete, online over none", "", 0.48 / 0.47, over(online.time(&["delete"]), none.time(&["delete"])))
        .alike("delete: online over none", "s", online.time(&["delete"]), none.time(&["delete"]), 0.9)
        .judged(),
        both(
            "paragraph 4, figures; paragraph 5",
            "With discards the sync after the delete takes 40.41 s in place of 0.17 s; delete and sync are 64 times slower.",
        )
        .figure(
            "delete and sync, online over none",
            "",
            (0.48 + 40.41) / (0.47 + 0.17),
            over(online.time(&DELETE), none.time(&DELETE)),
        )
        .larger("sync after the delete: online over none", "s", online.time(&sync), none.time(&sync))
        .at_least("delete and sync: online over none", "s", online.time(&DELETE), none.time(&DELETE), 2.0)
        .shown(BACKGROUND, background(measured, "tree", "tree-xfs"))
        .judged(),
        both("paragraph 4, figures", "The discards of the deleted tree take the drive 40 s.")
            .figure("busy with discards, for a tree of its size", "s", 40.24, online.busy(&DISCARDS).map(|s| s * scale()))
            .fitted("ocz-vertex-le's cost of a command")
            .judged(),
        both("paragraph 5", "While the discards last, any I/O is really slow.")
            .at_least(
                "longest read of others during and after the delete: online over none",
                "s",
                online.longest_read(&DISCARDS),
                none.longest_read(&DISCARDS),
                1.5,
            )
            .judged(),
    ]
}

fn advice(measured: &Measured) -> Vec<Claim> {
    let (online, batched) = (tree(measured, "online"), tree(measured, "batched"));
    let trim = measured.ext4("aged", "batched").trim(None);
    vec![
        both(
            "conclusion",
            "Do not use the option discard on such a drive: one pass over the free space costs less.",
        )
        .larger("waited: online over batched", "s", online.waited(), batched.waited())
        .larger(
            "the drive busy with discards of the deletes: online over batched",
            "s",
            online.busy(&DISCARDS),
            batched.busy(&DISCARDS),
        )
        .judged(),
        both("conclusion", "fstrim of a file system of 95 GB that is 60 % full takes about six minutes.")
            .figure(
                "fstrim, for each GiB of file system",
                "s",
                360.0 / (95e9 / f64::from(1 << 30)),
                trim.map(|s| s * f64::from(1 << 30) / SIZE.0 as f64),
            )
            .fitted("ocz-vertex-le's cost of a command, at an assumed 4000 free extents")
            .judged(),
        both("conclusion", "fstrim at shutdown or at night keeps writes fast at times when nobody waits.")
            .at_least(
                "rate of a write to an aged file system: after fstrim in the pause over never trimmed",
                "B/s",
                measured.ext4("aged", "batched").rate("write"),
                measured.ext4("aged", "none").rate("write"),
                MORE,
            )
            .at_least(
                "the pause in which it runs, a minute, over its time",
                "s",
                Some(60.0),
                batched.trim(None),
                1.0,
            )
            .because("An aged file system of this size leaves the drive little to collect, so that a trim gains little.")
            .judged(),
    ]
}

fn policies(measured: &Measured) -> Vec<Claim> {
    let (none, online, batched) =
        (tree(measured, "none"), tree(measured, "online"), tree(measured, "batched"));
    let smart = tree(measured, "smart");
    let aged = |policy| measured.ext4("aged-fast", policy);
    let model = |name: &str| measured.figure(name);
    vec![
        claim(
            POST,
            "comment by Patrick, July 9, 2011 at 5:01, option 1",
            "Without any TRIM the drive's writes slow down considerably after some time.",
        )
        .larger("random writes on a full drive, without discards over with", "s", model("kept"), model("discarded"))
        .judged(),
        claim(
            POST,
            "comment by Patrick, July 9, 2011 at 5:01, option 2",
            "The option discard prevents that, and makes every delete send TRIM commands, which can be really slow.",
        )
        .larger(
            "the drive busy with discards of the deletes: online over none",
            "s",
            online.busy(&DISCARDS),
            none.busy(&DISCARDS).map(|busy| busy + 0.01),
        )
        .larger("rate of the write to an aged file system: online over none", "B/s", aged("online").rate("write"), aged("none").rate("write"))
        .judged(),
        claim(
            POST,
            "comment by Patrick, July 9, 2011 at 5:01, option 3",
            "fstrim from time to time prevents it too, at later times than the deletes.",
        )
        .at_least(
            "discards in the pauses over those in the deletes, batched",
            "discards",
            batched.discards(&["after-delete"]),
            plus(batched.discards(&DELETE), Some(1.0)),
            1.0,
        )
        .at_least("rate of the write to an aged file system: batched over none", "B/s", aged("batched").rate("write"), aged("none").rate("write"), MORE)
        .judged(),
        claim(
            POST,
            "comment by Patrick, July 9, 2011 at 5:01, note",
            "Queueing the TRIMs and issuing them while there is no other I/O would not be felt.",
        )
        .at_least("waited: none over smart", "s", none.waited(), smart.waited(), SAME)
        .larger(
            "longest read of others during the delete: online over smart",
            "s",
            online.longest_read(&DELETE),
            smart.longest_read(&DELETE),
        )
        .shown(
            "What the delete frees waits for the pause, and is not felt. But smart does not wait for a pause where free space \
             that the drive does not know of slows writes: it sends a few discards of 84 ms beside them.",
            vec![
                order("delete and sync: none over smart", "s", none.time(&DELETE), smart.time(&DELETE), SAME),
                order(
                    "discards of smart while the tree is unpacked keep the drive busy, over nine tenths of what that takes longer",
                    "s",
                    smart.busy(&UNPACK),
                    beyond(smart.time(&UNPACK), none.time(&UNPACK)).map(|s| s * 0.9),
                    1.0,
                ),
            ],
        )
        .judged(),
        claim(
            POST,
            "comments by Patrick, May 21 and 31, 2012",
            "Without a sync the stall comes all the same, a few seconds after the delete, and does not wait for idle time.",
        )
        .larger(
            "longest read of others after the delete has returned: online over none",
            "s",
            online.longest_read(&["sync-deleted", "after-delete"]),
            none.longest_read(&["sync-deleted", "after-delete"]),
        )
        .judged(),
        claim(
            POST,
            "comment by Ellis Percival, December 16, 2015",
            "Once the queue of trims is full, the delete itself waits until the drive has worked it off.",
        )
        .at_least(
            "the delete alone, without sync, on XFS: online over none",
            "s",
            measured.run("tree-xfs", "xfs", "online").time(&["delete"]),
            measured.run("tree-xfs", "xfs", "none").time(&["delete"]),
            2.0,
        )
        .because("Deletes go to the log in memory; the sync after them waits for the discards.")
        .judged(),
        claim(
            POST,
            "comment by David Lethe, July 9, 2011",
            "Drives that are only written in large blocks never need a TRIM: only minor slow-downs in years.",
        )
        .at_least(
            "write amplification without any discard: 1.1 over that of large sequential writes",
            "",
            Some(1.1),
            model("sequential"),
            1.0,
        )
        .larger("the same: random writes over sequential ones", "", model("random"), model("sequential"))
        .judged(),
        claim(
            POST,
            "comment by JimA, November 29, 2011, paragraphs 1 and 3",
            "TRIM in SATA before 3.1 is not queued: the drive finishes all commands before it and starts none beside it.",
        )
        .number("TRIM commands at a time", "", 1.0, None)
        .fitted("the profiles' queued = false cites this post")
        .judged(),
        claim(
            POST,
            "comment by JimA, November 29, 2011, paragraph 2",
            "Saving TRIMs up and issuing them together at long intervals works around their cost.",
        )
        .larger("waited: online over batched", "s", online.waited(), batched.waited())
        .larger(
            "longest read of others during the delete: online over batched",
            "s",
            online.longest_read(&DELETE),
            batched.longest_read(&DELETE),
        )
        .judged(),
    ]
}

fn other_drives(measured: &Measured) -> Vec<Claim> {
    let (agility, corsair) =
        (|policy| measured.ext4("agility", policy), |policy| measured.ext4("corsair", policy));
    let (aged, fast) = (|policy| measured.ext4("aged", policy), |policy| measured.ext4("aged-fast", policy));
    vec![
        claim(
            POST,
            "comment by Michael Haas, February 6, 2012",
            "On another SandForce drive (Vertex 2, Linux 3.2.2) the sync after the delete is much slower with discards too.",
        )
        .at_least("delete and sync: online over none", "s", agility("online").time(&DELETE), agility("none").time(&DELETE), 2.0)
        .shown(BACKGROUND, background(measured, "agility", "agility-xfs"))
        .judged(),
        claim(
            POST,
            "comment by Sigi, July 31, 2012",
            "fstrim takes a few seconds on another maker's drive and many minutes on a SandForce drive.",
        )
        .at_least("fstrim of an aged file system: Vertex LE over Corsair", "s", aged("batched").trim(None), fast("batched").trim(None), 10.0)
        .follows(COMMANDS)
        .judged(),
        claim(
            POST,
            "comment by Sigi, July 31, 2012",
            "On that other drive fstrim improves sustained writes by about 100 %.",
        )
        .figure("rate of the write to an aged file system, batched over none", "", 2.0, over(fast("batched").rate("write"), fast("none").rate("write")))
        .larger("rate of the write to an aged file system: batched over none", "B/s", fast("batched").rate("write"), fast("none").rate("write"))
        .judged(),
        claim(
            POST,
            "comment by Ikem, October 30, 2012",
            "The older, faster drive was SLC and the newer one MLC.",
        )
        .because("A guess of the comment; nothing was measured there or here.")
        .judged(),
        claim(
            POST,
            "comment by Maarten Baert, December 5, 2012",
            "On a Crucial M4 (Linux 3.2) the sync after the delete takes 1.54 s: far less than on the Vertex LE.",
        )
        .figure("busy with discards, for a tree of its size", "s", 1.541, corsair("online").busy(&DISCARDS).map(|s| s * scale()))
        .larger("busy with discards of the delete: Vertex LE over Corsair", "s", tree(measured, "online").busy(&DISCARDS), corsair("online").busy(&DISCARDS))
        .follows(COMMANDS)
        .because(
            "The published time is that of the whole sync: of its writes, and of waiting for each discard. Ours is the time \
             in which the drive works on discards.",
        )
        .judged(),
        claim(
            POST,
            "comments by Steven Newbury, July 18 and 20, 2013",
            "A partition that is not aligned with the drive's pages stalls it; alignment makes it three times as fast.",
        )
        .by(FigureClock::Model, "writes of 4 KiB, misaligned over aligned", "", 3.0, over(measured.figure("misaligned"), measured.figure("aligned")))
        .larger("writes of 4 KiB: misaligned over aligned", "s", measured.figure("misaligned"), measured.figure("aligned"))
        .because("The model writes two pages for a misaligned one; it does not wait to read them first.")
        .judged(),
    ]
}

fn script(measured: &Measured) -> Vec<Claim> {
    let run = |name| measured.ext4(name, "none");
    let (never, exact, coarse) = (run("script-never"), run("script-exact"), run("script-coarse"));
    let all = ["exec"];
    vec![
        claim(
            POST,
            "comments by Patrick, July 9 at 5:09 and August 20, 2011",
            "A script that trims when more was written than is free keeps the drive from copying what is gone.",
        )
        .larger("pages copied: never trimmed over the script", "pages", never.extra_pages(&all), exact.extra_pages(&all))
        .judged(),
        claim(
            POST,
            "comment by Patrick, July 9, 2011 at 13:14",
            "If the count of what was written grows in steps of 64 GiB, the script trims late, and the drive performs poorly \
             until then.",
        )
        .at_least("discards: exact count over coarse count", "discards", exact.discards(&all), coarse.discards(&all), 1.0)
        .larger("pages copied: coarse count over exact count", "pages", coarse.extra_pages(&all), exact.extra_pages(&all))
        .judged(),
        claim(
            POST,
            "comment by David Lethe, July 9, 2011 at 18:41",
            "The granularity of a drive's count of written bytes differs: 32 GB on many, single bytes on some.",
        )
        .because("A fact about drives' firmware; no drive was measured here.")
        .judged(),
    ]
}
