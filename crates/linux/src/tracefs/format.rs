//! The layout of an event in the kernel's buffer, from its `format` file. Fields differ between kernels, so
//! each is looked up by name.

/// The layout of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    /// The number that each such event begins with.
    pub id: u16,
    fields: Vec<(String, Field)>,
    /// The print format, which names the values of enumerations.
    print: String,
}

/// The position of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    offset: usize,
    size: usize,
}

impl Format {
    /// Parses the text of a `format` file; returns `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let id = lines.by_ref().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let mut format = Self { id, fields: Vec::new(), print: String::new() };
        for line in lines {
            if let Some(print) = line.strip_prefix("print fmt:") {
                print.clone_into(&mut format.print);
            } else if let Some(field) = parse_field(line) {
                format.fields.push(field);
            }
        }
        Some(format)
    }

    /// The field `name`.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }

    /// The number of the enumeration's value that the kernel prints as `name`.
    pub fn value_of(&self, name: &str) -> Option<u64> {
        let (before, _) = self.print.split_once(&format!(", \"{name}\""))?;
        let (_, number) = before.rsplit_once('{')?;
        number.trim().parse().ok()
    }
}

impl Field {
    /// Returns the number in `event`; zero if the event is too short.
    pub fn number(self, event: &[u8]) -> u64 {
        match *self.bytes(event) {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    /// Returns the bytes in `event`; empty if the event is too short.
    pub fn bytes(self, event: &[u8]) -> &[u8] {
        event.get(self.offset..self.offset + self.size).unwrap_or(&[])
    }
}

/// Reads a line such as `field:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;`.
fn parse_field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let offset: u32 = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size: u32 = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    let name = declaration.split_whitespace().next_back()?.trim_start_matches('*');
    let name = name.split('[').next()?.to_owned();
    Some((name, Field { offset: offset as usize, size: size as usize }))
}

/// The layout of a page of the kernel's buffer, from `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageLayout {
    /// The time of the page's first event.
    pub time: Field,
    /// How much of the page is used, and flags.
    pub commit: Field,
    /// Where the events begin.
    pub data: usize,
}

impl PageLayout {
    /// Parses the text of `header_page`; returns `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.lines().filter_map(parse_field).collect();
        let field = |name| fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field);
        Some(Self { time: field("timestamp")?, commit: field("commit")?, data: field("data")?.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_64_kib_is_read() {
        let text = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:65520;\tsigned:0;
";
        let layout = PageLayout::parse(text).unwrap();
        let commit = Field { offset: 8, size: 8 };
        assert_eq!(layout, PageLayout { time: Field { offset: 0, size: 8 }, commit, data: 16 });
    }
}
