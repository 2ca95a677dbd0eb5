//! `trimtab report` as a user runs it, and its page as a browser shows it.

#[path = "../../report/tests/fixture/bench.rs"]
mod benches;
#[path = "../../report/tests/fixture/mod.rs"]
mod fixture;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use trimtab_core::policy::PolicyKind;
use trimtab_core::units::Bytes;

use benches::{bench, empty, lying};
use fixture::{fragment, without_drive};

fn trimtab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("report").args(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = trimtab(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn saved(dir: &TempDir, name: &str, document: &impl Serialize) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, serde_json::to_vec(document).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tables_pages_and_figures_come_from_the_file() {
    let dir = TempDir::new().unwrap();
    let emulated = fragment(&["ext4", "xfs"], &PolicyKind::ALL, 3);
    let files = [saved(&dir, "a.json", &emulated), saved(&dir, "b.json", &without_drive(emulated))];

    let table = stdout(&[&files[0]]);
    assert!(table.contains("On ext4 without a pause, smart is best"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour outside a terminal");

    let page = dir.path().join("new");
    let both = stdout(&[&files[0], &files[1], "--html", page.to_str().unwrap()]);
    assert!(both.contains("Virtual time") && both.contains("Real clock"), "{both}");
    assert!(both.contains(&files[1]) && both.contains("new/index.html"), "{both}");
    for missing in ["none/dir", "none/page.html"] {
        let output = trimtab(&[&files[0], "--html", dir.path().join(missing).to_str().unwrap()]);
        assert!(String::from_utf8(output.stderr).unwrap().contains("there is no directory"), "{missing}");
    }
    let again = trimtab(&[&files[0], "--html", page.to_str().unwrap()]);
    let error = String::from_utf8(again.stderr).unwrap();
    assert!(error.contains("new/index.html exists; --overwrite replaces it"), "{error}");
    let page = page.join("index.html");
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<section>").count(), 2, "it is kept");
    stdout(&[&files[0], "--html", page.to_str().unwrap(), "--overwrite"]);
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<section>").count(), 1);

    let figures: Value = serde_json::from_str(&stdout(&["--json", &files[0], &files[1]])).unwrap();
    assert!(figures[0]["clock"]["virtual"]["kernel"].is_string(), "{}", figures[0]["clock"]);
    assert_eq!(figures[1]["clock"]["real"]["speed"], 1.0);
    let rows = &figures[0]["file_systems"][1]["situations"][0]["rows"];
    assert!(rows.as_array().unwrap().iter().any(|row| row["policy"] == "batched"), "{rows}");
}

#[test]
fn bad_files_give_one_clear_line() {
    let dir = TempDir::new().unwrap();
    let whole = std::fs::read(saved(&dir, "whole.json", &fragment(&["ext4"], &PolicyKind::ALL, 1))).unwrap();
    std::fs::write(dir.path().join("cut.json"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(dir.path().join("text.json"), "hello").unwrap();
    std::fs::write(dir.path().join("other.json"), "{\"schema\": \"trimtab/compare/9\"}").unwrap();
    std::fs::write(dir.path().join("binary.json"), [0xff, 0xfe]).unwrap();
    for (name, reason) in [
        ("missing.json", "No such file"),
        ("cut.json", "cut off"),
        ("text.json", "not JSON"),
        ("other.json", "known schemas: trimtab/compare/2, trimtab/bench/1"),
        ("binary.json", "valid UTF-8"),
    ] {
        let page = dir.path().join("page.html");
        let output = trimtab(&[
            dir.path().join("whole.json").to_str().unwrap(),
            dir.path().join(name).to_str().unwrap(),
            "--html",
            page.to_str().unwrap(),
        ]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(name) && error.contains(reason), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty() && !page.exists(), "nothing is done if a file is bad");
    }
}

#[test]
fn benches_stand_beside_each_other_first() {
    let dir = TempDir::new().unwrap();
    let files = [
        saved(&dir, "slow.json", &bench("Slow", 10_100.0, 302.0)),
        saved(&dir, "compare.json", &fragment(&["ext4"], &PolicyKind::ALL, 1)),
        saved(&dir, "lying.json", &lying()),
    ];
    let page = dir.path().join("page.html");
    let text = stdout(&[&files[0], &files[1], &files[2], "--html", page.to_str().unwrap()]);
    assert!(text.starts_with("bench: 2 drives beside each other"), "{text}");
    assert!(
        text.contains("On ext4 without a pause, smart is best") && text.contains("A discard costs 10.1 ms"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<section>").count(), 4);

    let one = stdout(&[&files[0], &files[1]]);
    assert!(!one.contains("beside each other"), "{one}");
    let figures: Value = serde_json::from_str(&stdout(&["--json", &files[2]])).unwrap();
    assert_eq!(figures[0]["fit"]["cliffs"][0]["from"], 4096);
}

#[test]
fn results_of_one_drive_are_told_apart_by_their_files_and_dates() {
    let dir = TempDir::new().unwrap();
    let first = bench("Long Name of a Drive, 2.5 inch, 1 TB, A", 10_100.0, 302.0);
    let mut second = first.clone();
    second.started = "2026-11-22T08:30:00Z".to_owned();
    let files = [saved(&dir, "old.json", &first), saved(&dir, "new.json", &second)];
    let page = dir.path().join("page.html");
    let text = stdout(&[&files[0], &files[1], "--html", page.to_str().unwrap()]);
    let joined = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(joined.starts_with("bench: 2 results of one drive beside each other"), "{text}");
    assert!(joined.contains("measured 2026-11-22 08:30") && joined.contains("/new.json"), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    for label in [
        "A Long Name of a Drive, 2.5 inch, …, 2026-11-21 20:00",
        "B Long Name of a Drive, 2.5 inch, …, 2026-11-22 08:30",
    ] {
        assert!(page.contains(label), "{label}");
    }
}

#[test]
fn the_chart_becomes_an_image_on_request() {
    let dir = TempDir::new().unwrap();
    let [slow, compare, nothing] = [
        saved(&dir, "slow.json", &bench("Slow", 10_100.0, 302.0)),
        saved(&dir, "compare.json", &fragment(&["ext4"], &PolicyKind::ALL, 1)),
        saved(&dir, "nothing.json", &empty("Nothing")),
    ];
    let image = dir.path().join("latency.png");
    let path = image.to_str().unwrap();
    for (file, reason) in [(&compare, "no file is a result of trimtab bench"), (&nothing, "finished latency")]
    {
        let output = trimtab(&[file, "--png", path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(reason) && !image.exists(), "{error}");
    }
    let output = trimtab(&[&slow, "--png", path]);
    let error = String::from_utf8(output.stderr).unwrap();
    if error.contains("no font is installed") {
        assert!(std::env::var_os("CI").is_none(), "{error}");
        eprintln!("skipped: no font is installed (package fonts-dejavu-core)");
        return;
    }
    assert!(output.status.success(), "{error}");
    assert_eq!(&std::fs::read(&image).unwrap()[..4], b"\x89PNG");
    assert!(String::from_utf8(output.stdout).unwrap().ends_with(&format!("\nChart: {path}\n")));
}

/// Inspects a page in a browser: charts and bars that show, labels that overlap each other or
/// leave their chart, the height of the smallest, whether the page is wider than the window, and its background.
const INSPECTION: &str = "<script>
const found = { charts: 0, bars: 0, smallest: 1000, overlapping: [], outside: [] };
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const labels = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
  found.charts += frame.height > 100;
  found.bars += [...svg.querySelectorAll('rect')].filter(e => e.getBoundingClientRect().height > 0).length;
  labels.forEach(([text, a], place) => {
    found.smallest = Math.min(found.smallest, a.height);
    if (a.left < frame.left || a.right > frame.right || a.top < frame.top || a.bottom > frame.bottom)
      found.outside.push(text);
    for (const [other, b] of labels.slice(place + 1))
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
        found.overlapping.push([text, other]);
  });
}
found.too_wide = document.documentElement.scrollWidth > window.innerWidth;
found.background = getComputedStyle(document.body).backgroundColor;
found.loaded = performance.getEntriesByType('resource').map(entry => entry.name);
found.width = window.innerWidth;
const show = text => {
  document.body.innerHTML = '<pre id=\"found\"></pre>';
  document.getElementById('found').textContent = text;
};
if (window.parent === window) show(JSON.stringify(found));
else window.parent.postMessage(JSON.stringify(found), '*');
</script>";

/// Puts a page into a frame as wide as a phone's screen, which no window can be, and shows what its inspection
/// found.
fn framed(page: &Path) -> PathBuf {
    let frame = page.with_file_name("frame.html");
    let html = format!(
        "<script>window.onmessage = event => {{
  const pre = document.createElement('pre');
  pre.id = 'found';
  pre.textContent = event.data;
  document.body.append(pre);
}};</script><body><iframe width=380 height=2000 style=\"border: 0\" src=\"{}\"></iframe>",
        page.file_name().unwrap().to_str().unwrap()
    );
    std::fs::write(&frame, html).unwrap();
    frame
}

fn inspect(browser: &Path, page: &Path, options: &[&str]) -> Value {
    let profile = TempDir::new().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(&found.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")).unwrap()
}

/// The browser, or `None` if there is none: then the test is skipped, but never on CI.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("chromium")).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "chromium is missing (package chromium)");
        eprintln!("skipped: chromium is missing (package chromium)");
    }
    found
}

#[test]
fn a_browser_shows_every_chart_light_dark_and_narrow() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let mut document = fragment(&["ext4", "xfs", "btrfs"], &PolicyKind::ALL, 3);
    for step in document.runs.iter_mut().flat_map(|run| &mut run.steps) {
        step.name = step.name.replace("clear", "sync-after-delete");
    }
    let mut few_buckets = fragment(&["btrfs"], &[PolicyKind::Online], 1);
    few_buckets.runs[0].steps[0].discard_histogram.record(Bytes(1 << 24));
    let files = [
        saved(&dir, "a.json", &document),
        saved(&dir, "b.json", &few_buckets),
        saved(&dir, "c.json", &bench("SAMSUNG MZVL21T0HCLR-00B00 WITH A LONG NAME", 30.0, 4900.0)),
        saved(&dir, "d.json", &lying()),
    ];
    let path = dir.path().join("page.html");
    stdout(&[&files[0], &files[1], &files[2], &files[3], "--html", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    for outside in ["http:", "https:", "url(", "@import", "src=", "href=", "<link", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    std::fs::write(&path, page.replace("</body>", &format!("{INSPECTION}</body>"))).unwrap();

    let dark = "--blink-settings=preferredColorScheme=0";
    let phone = framed(&path);
    let budget = "--virtual-time-budget=5000";
    for (page_shown, width, window, options, background) in [
        (&path, 1200, "--window-size=1200,2000", [].as_slice(), "rgb(255, 255, 255)"),
        (&path, 1200, "--window-size=1200,2000", &[dark], "rgb(18, 22, 27)"),
        (&path, 500, "--window-size=500,2000", &[], "rgb(255, 255, 255)"),
        (&phone, 380, "--window-size=500,2000", &[budget], "rgb(255, 255, 255)"),
    ] {
        let found = inspect(&browser, page_shown, &[&[window], options].concat());
        assert_eq!(found["width"], width, "{found}");
        let what = format!("{window} {options:?}: {found}");
        // Of each comparison one overview, and of each file system two situations with a picture a
        // policy, their discards and their erases; then the charts of the benches.
        assert_eq!(found["charts"], page.matches("<svg").count(), "{what}");
        assert!(found["charts"].as_u64() > Some(40), "{what}");
        assert!(found["bars"].as_u64() > Some(100), "{what}");
        assert!(found["smallest"].as_f64() > Some(12.0), "{what}");
        for none in ["overlapping", "outside", "loaded"] {
            assert_eq!(found[none], Value::Array(Vec::new()), "{what}");
        }
        assert_eq!(found["too_wide"], false, "{what}");
        assert_eq!(found["background"], background, "{what}");
    }
}

#[test]
fn a_browser_shows_every_figure_of_a_simulation() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/small/builds-xfs.parquet");
    let policies = ["none", "online", "batched:10s", "smart", "ideal"];
    let (drives, policy) = ("ocz-agility-3,micron-emmc", policies.join(","));
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
    command.arg("sim").arg(trace).args(["--profile", drives, "--policy", &policy, "--report"]);
    let output = command.arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let path = dir.path().join("index.html");
    let page = std::fs::read_to_string(&path).unwrap();
    // Four figures of each policy on each of two drives.
    assert_eq!(page.matches("<text class=\"value\"").count(), 4 * policies.len() * 2, "{page}");
    std::fs::write(&path, page.replace("</body>", &format!("{INSPECTION}</body>"))).unwrap();
    let budget = "--virtual-time-budget=5000";
    for (page_shown, width, options) in [
        (&path, 1200, ["--window-size=1200,2000"].as_slice()),
        (&framed(&path), 380, &["--window-size=500,2000", budget]),
    ] {
        let found = inspect(&browser, page_shown, options);
        assert_eq!(
            (&found["width"], &found["too_wide"]),
            (&Value::from(width), &Value::from(false)),
            "{found}"
        );
        assert!(found["smallest"].as_f64() > Some(12.0), "{found}");
        for none in ["overlapping", "outside", "loaded"] {
            assert_eq!(found[none], Value::Array(Vec::new()), "{found}");
        }
    }
}

/// Prints a page, and returns the number of sheets.
fn sheets(browser: &Path, dir: &TempDir, page: &str) -> usize {
    let [html, pdf, profile] = ["page.html", "page.pdf", "profile"].map(|name| dir.path().join(name));
    std::fs::write(&html, page).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--print-to-pdf={}", pdf.display()))
        .arg(format!("file://{}", html.display()))
        .output()
        .unwrap();
    let printed =
        std::fs::read(&pdf).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let is_sheet = |line: &&[u8]| line.windows(12).any(|word| word == b"/Type /Page\n");
    printed.split_inclusive(|byte| *byte == b'\n').filter(is_sheet).count()
}

#[test]
fn paper_shows_the_parts_that_are_closed_on_the_screen() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let file = saved(&dir, "a.json", &fragment(&["ext4", "xfs"], &PolicyKind::ALL, 3));
    let path = dir.path().join("result.html");
    stdout(&[&file, "--html", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    let [closed, open, without] = [
        page.clone(),
        page.replace("<details>", "<details open>"),
        page.replace("details::details-content", "none"),
    ]
    .map(|page| sheets(&browser, &dir, &page));
    assert_eq!(closed, open);
    assert!(without < closed, "{without} of {closed} sheets without the rule");
}
