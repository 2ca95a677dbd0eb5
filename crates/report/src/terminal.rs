//! Text as a terminal shows it.

use crate::number::printable;

/// Columns of a terminal that the text keeps to.
pub const WIDTH: usize = 80;
pub const BOLD: &str = "\x1b[1m";
pub const RED: &str = "\x1b[1;31m";
pub const GREEN: &str = "\x1b[1;32m";
pub const YELLOW: &str = "\x1b[1;33m";
const RESET: &str = "\x1b[0m";

/// `text` in lines of at most [`WIDTH`] columns, broken at its spaces.
pub fn wrapped(text: &str) -> String {
    hanging("", text)
}

/// `text` behind `lead`, in lines of at most [`WIDTH`] columns that all start below the first word.
pub fn hanging(lead: &str, text: &str) -> String {
    let text = printable(text);
    let indent = lead.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for word in words(&text) {
        let needs = word.chars().count();
        match lines.last_mut() {
            Some(line) if length + 1 + needs <= WIDTH => {
                line.push(' ');
                line.push_str(&word);
                length += 1 + needs;
            }
            _ => {
                let start = if lines.is_empty() { lead.to_owned() } else { " ".repeat(indent) };
                lines.push(start + &word);
                length = indent + needs;
            }
        }
    }
    lines.join("\n")
}

/// The words of `text`; a figure and its unit are one word.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 9] = ["%", "B", "KiB", "MiB", "GiB", "µs", "ms", "s", "min"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_end_matches([';', ',', '.', ':', ')']);
        match words.last_mut() {
            Some(figure) if UNITS.contains(&bare) && figure.ends_with(|c: char| c.is_ascii_digit()) => {
                figure.push(' ');
                figure.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// `text` between the escape codes of `code` where `colour` is wanted.
pub fn paint(colour: bool, code: &str, text: String) -> String {
    if colour { format!("{code}{text}{RESET}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_keeps_its_unit() {
        let text = |before: usize| format!("{} 12 %; 3 runs", "x".repeat(before));
        assert_eq!(wrapped(&text(74)), format!("{} 12 %;\n3 runs", "x".repeat(74)));
        assert_eq!(wrapped(&text(76)), format!("{}\n12 %; 3 runs", "x".repeat(76)));
    }
}
