//! Metrics, alert rules and the dashboard, held to Prometheus' own programs.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_linux::mount;

use crate::broken::Failing;
use crate::support::{Daemon, TRIMTAB, Volume, eager, possible, refused, run, wait_until};

/// Metrics of a machine on which no service runs, with a thin pool. A test of the keeper crate compares the
/// file with what is rendered.
const EXAMPLE: &str = include_str!("../../../keeper/src/service/metrics/example.prom");

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring").join(name)
}

/// Whether a program of Debian's package `prometheus` is there; says so where it is not, and fails in CI.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "a test that needs {program} cannot be skipped in CI");
        eprintln!("skipped: it needs {program}");
    }
    found
}

/// Asserts that promtool has nothing to say against `metrics`.
fn assert_promtool_accepts(metrics: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success() && said.is_empty(), "{said}\n{metrics}");
}

/// Returns the body that `path` of the server at `port` on this machine answers with.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200").map(|_| body.to_owned())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn metrics_at(port: u16) -> String {
    format!("[metrics]\naddress = \"127.0.0.1:{port}\"\n")
}

/// A btrfs that discards by itself.
fn discarding() -> Volume {
    let volume = Volume::new("btrfs");
    mount::mount(&volume.device, &volume.target, "btrfs", "discard=async").unwrap();
    volume
}

#[test]
fn alert_rules_fire_as_their_tests_say() {
    if !is_there("promtool") {
        return;
    }
    let mut promtool = Command::new("promtool");
    let tested = promtool.args(["test", "rules"]).arg(packaged("trimtab.rules.test.yml")).output().unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&[tested.stdout, tested.stderr].concat()));
    // Each rule has a test in which it fires.
    let rules = fs::read_to_string(packaged("trimtab.rules.yml")).unwrap();
    let tests = fs::read_to_string(packaged("trimtab.rules.test.yml")).unwrap();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for name in names {
        let of_rule = format!("alertname: {name}\n        exp_alerts:\n");
        assert!(tests.contains(&of_rule), "no test expects {name} to fire");
    }
}

/// A Prometheus, which is ended when dropped.
struct Prometheus {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes these ports each half second, and evaluates the packaged rules.
    fn start(targets: &[u16]) -> Self {
        let dir = TempDir::new().unwrap();
        let (port, rules) = (free_port(), packaged("trimtab.rules.yml").canonicalize().unwrap());
        let targets: Vec<_> = targets.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: [\"{}\"]\n\
             scrape_configs: [{{job_name: trimtab, static_configs: [{{targets: [{}]}}]}}]\n",
            rules.display(),
            targets.join(", ")
        );
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let log = fs::File::create(dir.path().join("log")).unwrap();
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let prometheus = Self { child: command.spawn().unwrap(), port, dir };
        wait_until("Prometheus is ready", || get(port, "/-/ready").is_some());
        prometheus
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn ask(&self, path: &str) -> Value {
        let body = get(self.port, path).unwrap_or_else(|| panic!("{path} is refused: {}", self.log()));
        serde_json::from_str(&body).unwrap()
    }

    /// Returns the series that `query` gives now.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.ask(&format!("/api/v1/query?query={encoded}"));
        answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}")).clone()
    }

    /// Returns the first value that `query` gives now.
    fn value(&self, query: &str) -> Option<f64> {
        self.query(query).first()?["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Serves [`EXAMPLE`] on the returned port until the process ends.
fn serve_example() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
            _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{EXAMPLE}", EXAMPLE.len());
        }
    });
    port
}

/// Returns the queries of the dashboard's panels with their titles, as Grafana sends them for the machine
/// `instance`, but for those of thin pools, which are for all machines.
fn dashboard(instance: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(packaged("grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let instance = if query.contains("trimtab_pool_") { ".*" } else { instance };
            let query = query.replace("$instance", instance).replace("$mountpoint", ".*");
            queries.push((panel["title"].to_string(), query.replace("$__rate_interval", "30s")));
        }
    }
    queries
}

#[test]
fn dashboard_shows_what_prometheus_scrapes() {
    if !possible() || !is_there("prometheus") || !is_there("promtool") {
        return;
    }
    let (volume, own, failing) = (Volume::mounted("ext4"), discarding(), Failing::mounted("ext4"));
    failing.volume.write("file", Bytes(32 << 20));
    let port = free_port();
    let steered = own.table() + "policy = \"smart\"\n";
    let config = eager(&volume) + &eager(&failing.volume) + &steered + &metrics_at(port);
    let daemon = Daemon::start(&config);
    let prometheus = Prometheus::start(&[port, serve_example()]);
    wait_until("both targets are scraped", || prometheus.value("sum(up)") == Some(2.0));
    assert_promtool_accepts(&get(port, "/metrics").unwrap());

    daemon.wait_for(&failing.volume, "nothing is pending", |fs| fs.pending == Bytes::ZERO);
    failing.set(true);
    failing.volume.delete("file");

    let mount = format!("{{mountpoint=\"{}\"}}", volume.target.display());
    let trimmed = || prometheus.value(&format!("trimtab_discarded_bytes_total{mount}")).unwrap_or(0.0);
    let before = trimmed();
    volume.write("file", Bytes(64 << 20));
    volume.delete("file");
    wait_until("Prometheus sees the trim", || trimmed() >= before + f64::from(64 << 20));
    assert!(prometheus.value(&format!("rate(trimtab_discarded_bytes_total{mount}[30s])")).unwrap() > 0.0);
    let status = daemon.status_of(&volume).unwrap();
    assert!(trimmed() <= status.trimmed.0 as f64);

    let queries = dashboard(&format!("127.0.0.1:{port}"));
    assert!(queries.len() >= 15, "{queries:?}");
    for (panel, query) in queries {
        let found = prometheus.query(&query);
        assert!(!found.is_empty(), "the panel {panel} is empty: {query}");
    }
    // The values of variables come from these.
    for variable in ["trimtab_build_info", "trimtab_state"] {
        assert!(!prometheus.query(variable).is_empty(), "{variable}");
    }
    let own = format!("{{mountpoint=\"{}\",state=\"steered\"}}", own.target.display());
    assert_eq!(prometheus.value(&format!("trimtab_state{own}")), Some(1.0));

    // The example's pool is at 88 %, and has a blocked file system.
    let alerts = |name: &str| prometheus.query(&format!("ALERTS{{alertname=\"{name}\"}}"));
    for name in ["TrimtabPoolFilling", "TrimtabDiscardsBlocked"] {
        wait_until("the example raises an alert", || !alerts(name).is_empty());
    }
    assert_eq!(alerts("TrimtabPoolAlmostFull"), Vec::<Value>::new());
    // Its goal is one second, and six are allowed.
    let target = failing.volume.target.display().to_string();
    for name in ["TrimtabDiscardsFailing", "TrimtabPendingTooOld"] {
        wait_until("failing discards raise an alert", || !alerts(name).is_empty());
        let of: Vec<_> = alerts(name).iter().map(|alert| alert["metric"]["mountpoint"].clone()).collect();
        assert_eq!(of, [target.as_str()], "{name}");
    }
}

/// Runs `trimtab status --textfile` for the service whose sockets are in `run`.
fn textfile(run: &Path, file: &Path) -> Output {
    Command::new(TRIMTAB).arg("status").arg("--run").arg(run).arg("--textfile").arg(file).output().unwrap()
}

#[test]
fn textfile_has_what_the_service_serves() {
    if !possible() || !is_there("promtool") {
        return;
    }
    let volume = Volume::mounted("ext4");
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trimtab.prom");
    let port = free_port();
    let daemon = Daemon::start(&(eager(&volume) + &metrics_at(port)));
    daemon.wait_for(&volume, "nothing is pending", |fs| fs.pending == Bytes::ZERO);
    let output = textfile(&daemon.run(), &file);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert_promtool_accepts(&text);
    let names = |text: &str| -> Vec<_> {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
    };
    assert_eq!(names(&text), names(&get(port, "/metrics").unwrap()));
    assert!(text.contains("\ntrimtab_service_up 1\n"), "{text}");

    // It is replaced by a whole new file, and nothing else is left in the directory.
    let first = fs::metadata(&file).unwrap().ino();
    let kept = fs::File::open(&file).unwrap();
    assert!(textfile(&daemon.run(), &file).status.success());
    assert_ne!(fs::metadata(&file).unwrap().ino(), first);
    assert_eq!(std::io::read_to_string(kept).unwrap(), text);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn textfile_without_a_service_has_the_counters_of_the_kernel() {
    if !possible() || !is_there("promtool") {
        return;
    }
    let own = discarding();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trimtab.prom");
    own.write("file", Bytes(64 << 20));
    own.delete("file");
    run(Command::new("btrfs").args(["filesystem", "sync"]).arg(&own.target));
    let device = own.device.display();
    let labels = format!("mountpoint=\"{}\",device=\"{device}\",fstype=\"btrfs\"", own.target.display());
    // What was freed waits, is discarded, or both: btrfs delays its discards by minutes or sends them at once.
    let start = Instant::now();
    let text = loop {
        let output = textfile(dir.path(), &file);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = fs::read_to_string(&file).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("trimtab_{name} ")));
            line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
        };
        let waits = value(&format!("btrfs_discardable_bytes{{{labels}}}"));
        let done = value(&format!("btrfs_discarded_bytes_total{{{labels},kind=\"extent\"}}"));
        if waits + done >= f64::from(64 << 20) {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{text}");
        thread::sleep(Duration::from_millis(100));
    };
    assert_promtool_accepts(&text);
    assert!(text.contains("\ntrimtab_service_up 0\n"), "{text}");
    assert!(text.contains(&format!("trimtab_unmanaged{{{labels},reason=\"")), "{text}");
    assert!(!text.contains("trimtab_pending"), "what only a service knows is not claimed: {text}");
}

#[test]
fn textfile_that_cannot_be_used_is_refused() {
    let dir = TempDir::new().unwrap();
    let said = refused(&textfile(dir.path(), &dir.path().join("trimtab.txt")));
    assert!(said.contains("node_exporter reads only files that end in .prom"), "{said}");
    refused(&textfile(dir.path(), &dir.path().join("missing/trimtab.prom")));
    let taken = dir.path().join("taken.prom");
    fs::create_dir(&taken).unwrap();
    refused(&textfile(dir.path(), &taken));
    let both = Command::new(TRIMTAB).args(["status", "--json", "--textfile", "a.prom"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
