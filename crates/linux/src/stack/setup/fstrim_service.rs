//! The service that `fstrim.timer` starts.

use std::fs;

use super::{FstrimService, Reader, systemctl};

const PROPERTIES: &str = "LoadState,ExecStart,Result,ProtectHome";
/// The file of a captured machine with the service manager's answer.
const CAPTURED: &str = "/trimtab/fstrim-service";

/// Returns what `fstrim.service` runs by the service manager, drop-ins included; none where there is no service manager.
pub(super) fn read(reader: &mut Reader) -> Option<FstrimService> {
    if !reader.machine.is_live() {
        return parse(&fs::read_to_string(reader.machine.file(CAPTURED)).ok()?);
    }
    // The timer's reader says why there is no answer.
    let answer = systemctl::show(reader.machine, "fstrim.service", PROPERTIES)?.ok()?;
    parse(&String::from_utf8_lossy(&answer.stdout))
}

/// Reads lines `PROPERTY=VALUE`; none where no unit was loaded.
fn parse(text: &str) -> Option<FstrimService> {
    let values = |property| systemctl::values(text, property);
    values("LoadState").find(|state| *state == "loaded")?;
    Some(FstrimService {
        commands: values("ExecStart").filter_map(words).collect(),
        result: values("Result").next().unwrap_or("success").to_owned(),
        hides_homes: values("ProtectHome").any(|word| matches!(word, "yes" | "tmpfs")),
    })
}

/// The words of a command in systemd's form: `{ path=/sbin/fstrim ; argv[]=/sbin/fstrim --all ; ignore_errors=no ; ... }`.
fn words(command: &str) -> Option<Vec<String>> {
    let (_, rest) = command.split_once("argv[]=")?;
    let words = rest.split(" ; ").next()?;
    Some(words.split_whitespace().map(str::to_owned).collect())
}

impl FstrimService {
    /// The lines that are read back as this.
    pub(in crate::stack) fn lines(&self) -> String {
        let command = |words: &Vec<String>| format!("ExecStart={{ argv[]={} ; }}\n", words.join(" "));
        let commands: String = self.commands.iter().map(command).collect();
        let homes = if self.hides_homes { "yes" } else { "read-only" };
        format!("LoadState=loaded\n{commands}Result={}\nProtectHome={homes}\n", self.result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_systemd_prints_them() {
        let text = "Result=exit-code\nLoadState=loaded\n\
            ExecStart={ path=/sbin/fstrim ; argv[]=/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo --verbose \
            --quiet-unsupported ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; \
            status=0/0 }\nExecStart={ path=/sbin/fstrim ; argv[]=/sbin/fstrim /srv ; ignore_errors=yes }\n";
        let service = parse(text).unwrap();
        let words: Vec<_> = service.commands.iter().map(|words| words.join(" ")).collect();
        let first = "/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo --verbose --quiet-unsupported";
        assert_eq!(
            (words, service.result.as_str()),
            (vec![first.to_owned(), "/sbin/fstrim /srv".to_owned()], "exit-code")
        );
        assert!(!service.hides_homes, "older captures don't say");
        assert_eq!(parse(&service.lines()), Some(service));
        let hidden = parse("LoadState=loaded\nProtectHome=yes\n").unwrap();
        assert!(hidden.hides_homes);
        assert_eq!(parse(&hidden.lines()), Some(hidden));
        assert_eq!(parse("LoadState=not-found\nResult=success\n"), None);
    }
}
