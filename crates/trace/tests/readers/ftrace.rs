//! The texts of ftrace, of its `blk` tracer, and of trace-cmd, perf and atrace.

use trimtab_core::trace::EventKind::{Discard, Flush, Read, Write, WriteZeroes};

use super::{brief, data, message, text};

#[test]
fn perf_script_is_read() {
    let trace = text(
        "           mount  9204 [001]  1167.426519:   block:block_bio_queue: 7,0 RA 524160 + 8 [mount]\n\
         \u{20}          mount  9204 [001]  1167.426532:    block:block_rq_issue: 7,0 RA 4096 () 524160 + 8 0x2,0,4 [mount]\n\
         \tffffffff81b47d7f blk_mq_start_request+0xcf ([kernel.kallsyms])\n\n\
         \u{20}    ksoftirqd/1    22 [001]  1167.426581: block:block_rq_complete: 7,0 RA () 524160 + 8 0x2,0,4 [0]\n\
         \u{20}kworker/1:1H-kb    54 [001]  1167.682209:    block:block_rq_issue: 7,0 NS 1048576 () 262144 + 2048 0x2,0,4 [kworker/1:1H]\n",
    )
    .unwrap();
    let expected = [
        (0, Read, 524_160 * 512, 4096, Some(49_000)),
        (255_677_000, WriteZeroes, 262_144 * 512, 1 << 20, None),
    ];
    assert_eq!(brief(&trace), expected);
    assert_eq!(trace.events[0].process.to_string(), "mount");
}

#[test]
fn trace_cmd_report_is_read() {
    let trace = text(
        "cpus=2\n             fio-93    [000]   100.000100: block_rq_issue:       8,0 WS 4096 () 0 + 8 [fio]\n\
         CPU:1 [3 EVENTS DROPPED]\nCPU:0 [EVENTS DROPPED]\n\
         \u{20}         <idle>-0     [001]   100.000300: block_rq_complete:    8,0 WS () 0 + 8 [0]\n\
         \u{20}            fio-93    [000]   100.000400: block_rq_issue:       8,0 WS 4096 () 8 + 8 [fio]\n\
         \u{20}         <idle>-0     [001]   100.000500: block_rq_complete:    8,0 WS () 8 + 8 [0]\n",
    )
    .unwrap();
    // The first completion may belong to a lost request.
    assert_eq!(brief(&trace), [(0, Write, 0, 4096, None), (300_000, Write, 4096, 4096, Some(100_000))]);
    assert_eq!(trace.header.lost, 4);
}

/// The kernel's `blk` tracer wrote both, 6.18.
#[test]
fn blk_tracer_is_read_in_both_of_its_forms() {
    let expected = [
        (0, Flush, 0, 0, Some(2_702_000)),
        (2_743_000, Read, 0, 16384, Some(105_000)),
        (6_059_126_000_u64, Discard, 5024 * 512, 384 * 512, Some(95_000_u64)),
    ];
    let normal = "# tracer: blk\n#\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1160.661970:   7,0    Q FWS [mkfs.ext4]\n\
        \u{20}   kworker/0:1H-44      [000] d..1.  1160.662023:   7,0    D  FN [kworker/0:1H]\n\
        \u{20}    ksoftirqd/0-14      [000] d.s1.  1160.664725:   7,0    C  FN 0 [0]\n\
        \u{20}    ksoftirqd/0-14      [000] d.s2.  1160.664729:   7,0    C  WS 0 [0]\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1160.664766:   7,0    Q  RA 0 + 32 [mkfs.ext4]\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1160.664780:   7,0   UT   N [mkfs.ext4] 1\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1160.664766:   7,0    D  RA 0 + 32 [mkfs.ext4]\n\
        \u{20}          rustc-8994    [001] d.s1.  1160.664871:   7,0    C  RA 0 + 32 [0]\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1166.721149:   7,0    Q   D 5024 + 384 [a]\n\
        \u{20}      mkfs.ext4-9057    [000] d..1.  1166.721149:   7,0    D   D 5024 + 384 [a]\n\
        \u{20}          rustc-8994    [001] d.s1.  1166.721244:   7,0    C   D 5024 + 384 [0]\n";
    let classic = "# tracer: blk\n#\n# DEV   CPU TIMESTAMP     PID ACT FLG\n#  |     |     |           |   |   |\n\
        \u{20} 7,0    0  1160.661970000  9057  Q FWS [mkfs.ext4]\n\
        \u{20} 7,0    0  1160.662023000    44  D  FN [kworker/0:1H]\n\
        \u{20} 7,0    0  1160.664725000    14  C  FN 0 [0]\n\
        \u{20} 7,0    0  1160.664729000    14  C  WS 0 [0]\n\
        \u{20} 7,0    0  1160.664766000  9057  D  RA 0 + 32 [mkfs.ext4]\n\
        \u{20} 7,0    0  1160.664871000  9057  C  RA 0 + 32 [0]\n\
        \u{20} 7,0    0  1166.721149000  9057  Q   D 5024 + 384 [a]\n\
        \u{20} 7,0    0  1166.721149000  9057  D   D 5024 + 384 [a]\n\
        \u{20} 7,0    1  1166.721244000    22  C   D 5024 + 384 [0]\n";
    let without_comments: String = classic.lines().skip(4).map(|line| format!("{line}\n")).collect();
    for lines in [normal, classic, &without_comments] {
        let trace = text(lines).unwrap();
        let times: Vec<_> = brief(&trace).into_iter().map(|event| (event.1, event.2, event.3)).collect();
        assert_eq!(times, expected.map(|event| (event.1, event.2, event.3)));
        assert_eq!(trace.events[1].latency.map(|it| it.0), Some(105_000));
    }
}

#[test]
fn lines_of_atrace_before_the_trace_are_passed_over() {
    let block = std::fs::read_to_string(data("android-block.txt")).unwrap();
    let trace = text(&format!("capturing trace... done\nTRACE:\n{block}")).unwrap();
    assert_eq!(trace.events, text(&block).unwrap().events);
    assert!(message(&format!("{block}TRACE:\n")).contains("is no event of ftrace"));
}

/// perf's columns are chosen with `-F`: without the processor, and with the number of events of a sample.
#[test]
fn columns_of_perf_script_do_not_matter() {
    let lines = |processor: &str, period: &str| {
        let start = format!("  my prog 1  9204 {processor}  1167.4265");
        format!(
            "{start}19: {period}  block:block_bio_queue: 7,0 RA 524160 + 8 [my prog 1]\n\
             {start}32: {period}   block:block_rq_issue: 7,0 RA 4096 () 524160 + 8 0x2,0,4 [my prog 1]\n\
             {start}81: {period}block:block_rq_complete: 7,0 RA () 524160 + 8 0x2,0,4 [0]\n"
        )
    };
    let expected = text(&lines("[001]", "")).unwrap();
    assert_eq!(brief(&expected), [(0, Read, 524_160 * 512, 4096, Some(49_000))]);
    for lines in [lines("", ""), lines("[001]", "         1 "), lines("", " 1 ")] {
        let trace = text(&lines).unwrap();
        assert_eq!(trace.events, expected.events, "{lines}");
        assert_eq!(trace.events[0].process.to_string(), "my prog 1");
    }
}

/// With `-l`, trace-cmd writes the processor and the flags as one word. The task is needed for the ranges of discards.
#[test]
fn latency_format_of_trace_cmd_is_read() {
    let lines = "cpus=2\n    a-7     1d..2.    60.000001: block_bio_queue:      8,0 D 0 + 8 [a]\n\
                 b-8     0.....    60.000002: block_bio_queue:      8,0 D 100 + 8 [b]\n\
                 a-7     1.....    60.000003: block_bio_queue:      8,0 D 200 + 8 [a]\n\
                 a-7     1.....    60.000004: block_rq_issue:       8,0 D 8192 () 0 + 16 [a]\n\
                 b-8     0.....    60.000005: block_rq_issue:       8,0 D 4096 () 100 + 8 [b]\n";
    let places: Vec<_> =
        brief(&text(lines).unwrap()).iter().map(|event| (event.2 / 512, event.3 / 512)).collect();
    assert_eq!(places, [(0, 8), (200, 8), (100, 8)]);
}

/// ftrace's option `stacktrace` puts a call chain behind each event, `userstacktrace` another.
#[test]
fn call_chains_are_passed_over() {
    let issue =
        "  dd-31260   [000] .....  1374.876403: block_rq_issue: 7,1 WS 65536 () 0 + 128 be,0,4 [dd]\n";
    let chain = "  dd-31260   [000] .....  1374.876404: <stack trace>\n => submit_bio_wait\n => ksys_write\n\
        \u{20} dd-31260   [000] .....  1374.876405: <user stack trace>\n =>  <00007f1b5a4d1bd0>\n";
    let trace = text(&format!("# tracer: nop\n{issue}{chain}")).unwrap();
    assert_eq!(brief(&trace), [(0, Write, 0, 65536, None)]);
    assert_eq!(trace.counts.skipped["lines of call chains"], 5);
}

/// The clocks `counter`, `uptime` and `x86-tsc` count other things than nanoseconds.
#[test]
fn times_that_are_no_seconds_are_refused_with_the_reason() {
    let error =
        message("# tracer: nop\n  dd-30512 [000] ..... 3353763554845: block_bio_queue: 7,1 WS 0 + 1 [dd]\n");
    assert!(
        error.contains("time is \"3353763554845\", which is no number of seconds: record with another clock"),
        "{error}"
    );
}

#[test]
fn gaps_are_those_of_the_events_that_are_there() {
    let block = "# tracer: nop\n  dd-3 [000] ..... 1.000000: block_rq_issue: 7,1 WS 512 () 0 + 1 [dd]\n";
    assert_eq!(text(block).unwrap().header.gaps, [""; 0]);
    let tracer = "# tracer: blk\n  dd-3 [000] ..... 1.000000:   7,0    D  RA 0 + 32 [dd]\n";
    let gaps = text(tracer).unwrap().header.gaps;
    assert!(gaps[0].contains("write-zeroes as writes") && gaps.len() == 1, "{gaps:?}");
    let mmc = std::fs::read_to_string(data("android-mmc.txt")).unwrap();
    assert!(text(&mmc).unwrap().header.gaps.join("; ").contains("mmc events are taken as sectors"));
}
