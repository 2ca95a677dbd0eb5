//! Traces of other programs that are damaged, hostile, or at the limits.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trimtab_core::trace::{EventKind, TraceEvent};
use trimtab_core::units::Nanos;
use trimtab_trace::{Columns, Format, TraceError, open};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// All events up to the end or the error, and that.
fn read(path: &Path, format: Option<Format>) -> (Vec<TraceEvent>, Option<TraceError>) {
    let mut reader = match open(path, format, Columns::All) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        let read = reader.next_batch(&mut batch);
        all.extend_from_slice(&batch);
        match read {
            Ok(()) if batch.is_empty() => return (all, None),
            Ok(()) => {}
            Err(error) => return (all, Some(error)),
        }
    }
}

fn read_bytes(bytes: &[u8]) -> (Vec<TraceEvent>, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let (events, error) = read(file.path(), None);
    (events, error.map(|error| error.to_string()).unwrap_or_default())
}

/// A text breaks off, or has a line of rubbish: all lines before are good, those too that still waited
/// to be put in order.
#[test]
fn lines_before_a_broken_one_are_kept() {
    let lines: String = (0..100).map(|row| format!("0,W,0,4096,{}\n", 1_577_808_000 + row)).collect();
    let (events, error) = read_bytes((lines.clone() + "0,W,0").as_bytes());
    assert_eq!(events.len(), 100);
    assert!(error.contains("row 101: it has not the 5 fields"), "{error}");
    let packed = zstd::encode_all(lines.repeat(100).as_bytes(), 1).unwrap();
    let (_, error) = read_bytes(&packed[..packed.len() - 3]);
    assert!(error.contains("cannot be read: incomplete frame"), "{error}");
    let text = std::fs::read_to_string(data("bt.txt")).unwrap();
    let half: String = text.lines().take(200).map(|line| format!("{line}\n")).collect();
    let (whole, broken) = (read_bytes(half.as_bytes()), read_bytes((half + "rubbish\n").as_bytes()));
    assert_eq!((broken.0.len(), whole.1.as_str()), (whole.0.len(), ""));
    assert!(!broken.0.is_empty() && broken.1.contains("row 201"), "{}", broken.1);
}

/// blktrace was killed: its last record breaks off.
#[test]
fn records_before_a_broken_one_are_kept() {
    let bytes = std::fs::read(data("single.blktrace")).unwrap();
    let (events, error) = read_bytes(&bytes[..bytes.len() - 1]);
    assert!(events.len() >= 19, "{}", events.len());
    assert!(error.contains("the file ends in the middle of it"), "{error}");
}

#[test]
fn a_blktrace_of_the_next_version_is_refused() {
    let mut bytes = std::fs::read(data("single.blktrace")).unwrap();
    bytes[0] = 8;
    assert!(read_bytes(&bytes).1.contains("version is \"8\", which trimtab doesn't read"));
}

#[test]
fn missing_file_of_a_processor_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_, error) = read(&dir.path().join("sda.blktrace.3"), Some(Format::Blktrace));
    assert!(matches!(error, Some(TraceError::Io { .. })), "{error:?}");
}

/// `trimtab trace info <(zcat TRACE.gz)`: what is read to find the format would be missing.
#[test]
fn a_pipe_is_refused() {
    let mut child = Command::new("cat").arg(data("write.iolog")).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = child.stdout.take().unwrap();
    let (_, error) = read(&Path::new("/proc/self/fd").join(pipe.as_raw_fd().to_string()), None);
    let error = error.unwrap().to_string();
    assert!(
        error.ends_with("a pipe can't be read twice to find the trace's format; copy it to a file"),
        "{error}"
    );
    drop(pipe);
    child.wait().unwrap();
}

/// A driver that is busy gives a request back, and it is issued again: it is one request.
#[test]
fn requeued_request_is_one_event() {
    let step = |time: u64, step: &str| format!("  8,0  0  {time}  0.{time:09}  9  {step}\n");
    let lines = step(100, "Q  W 8 + 8 [dd]")
        + &step(200, "D  W 8 + 8 [dd]")
        + &step(300, "R  W 8 + 8 [0]")
        + &step(400, "D  W 8 + 8 [kworker/0:1H]")
        + &step(900, "C  W 8 + 8 [0]");
    let (events, error) = read_bytes(lines.as_bytes());
    assert_eq!((events.len(), error.as_str()), (1, ""));
    assert_eq!((events[0].latency, events[0].process.to_string()), (Some(Nanos(500)), "dd".to_owned()));
}

#[test]
fn impossible_times_are_refused() {
    let far = u64::MAX / 1000;
    for lines in
        [format!("0,8,w,512\n{far},8,w,512\n"), format!("128166372003061629,usr,0,Read,0,512,{far}0\n")]
    {
        let (_, error) = read_bytes(lines.as_bytes());
        assert!(error.contains("more than 146 years"), "{error}");
    }
}

/// A rack of drives moves more than one drive can.
#[test]
fn rate_limit_applies_to_each_device() {
    let row = |row: u64| format!("{},W,0,1073741824,{}\n", row % 20, 1_577_808_000_000_000 + row * 5000);
    let (events, error) = read_bytes((0..1000).map(row).collect::<String>().as_bytes());
    assert_eq!((events.len(), error.as_str()), (1000, ""), "200 GB a second by 20 drives");
}

#[test]
fn number_and_names_of_devices_are_limited() {
    let row = |row: u32| format!("{row},W,0,4096,1577808000000000\n");
    let (events, error) = read_bytes((0..70_000).map(row).collect::<String>().as_bytes());
    assert_eq!(events.len(), 65_536);
    assert!(error.contains("row 65537: it names more than 65536 devices"), "{error}");
    let long = format!("fio version 3 iolog\n0 {} write 0 4096\n", "x".repeat(5000));
    assert!(read_bytes(long.as_bytes()).1.contains("is too long a name"));
    assert!(events.iter().all(|event| event.kind == EventKind::Write));
}
