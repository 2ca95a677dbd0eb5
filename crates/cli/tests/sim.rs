//! `trimtab sim` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
    command.arg("sim").args(args.split_whitespace()).output().unwrap()
}

fn json(args: &str) -> Value {
    let output = sim(&format!("{args} --json"));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn json_has_the_steady_state_and_conserves_pages() {
    let outcome =
        json("--blocks 2048 --pages-per-block 64 --spare 0.10 --gc greedy --drive-writes 5 --seed 7");
    let number = |key: &str| outcome[key].as_f64().unwrap_or_else(|| panic!("{key} in {outcome}"));
    assert!((number("waf") / 4.816 - 1.0).abs() < 0.01, "{}", number("waf"));
    assert!((number("predicted_waf") / 4.816 - 1.0).abs() < 0.001);
    assert!((number("effective_spare") - 0.10).abs() < 1e-4);
    assert_eq!(outcome["steady"], true);
    assert_eq!(number("host_pages"), 5.0 * number("logical_pages"));
    assert_eq!(number("waf"), number("flash_pages") / number("host_pages"));
    assert!((number("erases") * 64.0 - number("flash_pages")).abs() <= 3.0 * 64.0);
    assert!(number("bytes_per_page") <= 8.0 && number("host_pages_per_second") > 0.0);
    assert_eq!(outcome["waf_windows"].as_array().map(Vec::len), Some(20));
    assert!(outcome["erase_spread"]["mean"].as_f64() > Some(0.0));
    assert_eq!((&outcome["workload"], &outcome["gc"]), (&Value::from("uniform"), &Value::from("greedy")));
}

#[test]
fn every_workload_and_policy_runs() {
    for workload in ["uniform", "hotcold:.9/.1 --streams 2", "trim:.2", "sequential"] {
        for gc in ["greedy", "fifo", "d-choices:3", "cost-benefit"] {
            let args = format!("--workload {workload} --gc {gc} --blocks 128 --pages-per-block 32");
            assert!(json(&args)["waf"].as_f64() >= Some(1.0), "{args}");
        }
    }
}

#[test]
fn bare_run_separates_model_time_from_wall_time() {
    let output = sim("");
    let text = String::from_utf8(output.stdout).unwrap();
    let position = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
    assert!(position("Model\n") < position("write amplification"));
    assert!(position("closed form 4.059") < position("Wall\n"));
    assert!(position("Wall\n") < position("million host pages/s"));
}

#[test]
fn bad_input_gets_one_clear_line() {
    for (args, reason) in [
        ("--workload zipf", "there is no workload \"zipf\"; there are uniform,"),
        ("--workload trim:0.5", "at least 0 and below 0.5"),
        ("--gc lru", "there is no garbage collection \"lru\"; there are greedy,"),
        ("--spare 1.5", "a spare factor of 1.5 is not possible"),
        ("--spare much", "invalid value 'much' for '--spare <S>'"),
        ("--blocks 2", "2 erase blocks are too few; it must be 4 or more"),
        ("--streams 2", "2 streams are not possible with uniform"),
        ("--drive-writes -1", "-1"),
        ("--drive-writes 1e300", "at most 1000000"),
        ("--gc d-choices:4294967295", "D from 1 to 1024"),
        ("--blocks 4294967295 --pages-per-block 4294967295", "of memory, but"),
        // Options of a trace have no effect on a synthetic workload.
        ("--workload uniform --profile nosuch", "'--workload <WORKLOAD>' cannot be used with"),
        ("--aged", "required arguments were not provided"),
        ("--pages-per-block 0", "the number of pages per block must be 1 or more"),
    ] {
        let output = sim(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        assert!(
            message.contains(reason) && message.starts_with("trimtab: ") && message.lines().count() == 1,
            "{args}: {message}"
        );
        assert!(output.stdout.is_empty(), "{args}");
    }
}
