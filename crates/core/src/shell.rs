//! Words as a shell reads them.

use std::fmt::Display;

/// Returns `word` quoted for a shell, if it needs that, in one line: control characters are written as bash and
/// POSIX 2024 take them.
pub fn quoted(word: impl Display) -> String {
    let word = word.to_string();
    if word.chars().any(char::is_control) {
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if c.is_control() => {
                c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}")).collect()
            }
            c => c.to_string(),
        };
        return format!("$'{}'", word.chars().map(escaped).collect::<String>());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_.:=@,+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the command line of a program and its arguments.
pub fn command_line(words: &[String]) -> String {
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn shell_gives_the_words_back() {
        let words =
            ["printf", "%s\\n", "a b", "it's", "", "$HOME", "*", "{dir}", "x;y", "a\n\\b'c", "-o=1,2"];
        let line = command_line(&words.map(str::to_owned));
        let printed = Command::new("bash").args(["-c", &line]).output().unwrap().stdout;
        assert_eq!(String::from_utf8(printed).unwrap(), words[2..].join("\n") + "\n");
        assert_eq!(quoted("/dev/sda"), "/dev/sda");
    }
}
