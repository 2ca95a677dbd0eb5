//! Splits lines into fields and words, and reads lines that are laid out as expected in one go.

use crate::error::RowError;
use crate::text::number;

/// A field of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Field<'a> {
    /// The field without the blanks around it.
    pub(crate) text: &'a [u8],
}

impl Field<'_> {
    /// Returns the number that it is.
    pub(crate) fn number(&self, column: &'static str) -> Result<u64, RowError> {
        number(column, self.text)
    }

    /// Returns true if it is a number.
    pub(crate) fn is_number(&self) -> bool {
        self.number("").is_ok()
    }
}

/// Returns the fields of a line between `comma`s; an error unless there are exactly `N`.
pub(crate) fn fields<const N: usize>(line: &[u8], comma: u8) -> Result<[Field<'_>; N], RowError> {
    let mut fields = [Field::default(); N];
    let mut start = 0;
    for (place, field) in fields.iter_mut().enumerate() {
        let rest = line.get(start..).ok_or_else(|| RowError::Fields { wanted: N })?;
        let end = memchr::memchr(comma, rest);
        if end.is_some() == (place + 1 == N) {
            return Err(RowError::Fields { wanted: N });
        }
        let end = end.unwrap_or(rest.len());
        *field = Field { text: rest[..end].trim_ascii() };
        start += end + 1;
    }
    Ok(fields)
}

/// The words of a line. If `CONTROLS`, all control characters separate words, as spaces do, else only whitespace does.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a, const CONTROLS: bool = true> {
    line: &'a [u8],
    /// The end of the last word that was returned.
    end: usize,
}

impl<'a, const CONTROLS: bool> Words<'a, CONTROLS> {
    pub(crate) const fn of(line: &'a [u8]) -> Self {
        Self { line, end: 0 }
    }

    /// Returns the text behind the words that were returned.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.line[self.end..]
    }
}

impl<'a, const CONTROLS: bool> Iterator for Words<'a, CONTROLS> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        let is_blank = |byte: &u8| if CONTROLS { *byte <= b' ' } else { byte.is_ascii_whitespace() };
        let rest = self.rest();
        let start = rest.iter().position(|byte| !is_blank(byte))?;
        let mut end = start;
        loop {
            end = find_end(&rest[end..], b' ').map_or(rest.len(), |length| end + length);
            if rest.get(end).is_none_or(is_blank) {
                break;
            }
            end += 1;
        }
        self.end += end;
        Some(Field { text: &rest[start..end] })
    }
}

/// The lowest bit of each byte of a word.
const LOW: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH: u64 = LOW << 7;

/// Returns the place of the first byte that is `end` or a control character, eight bytes at a time.
#[inline(always)]
fn find_end(text: &[u8], end: u8) -> Option<usize> {
    let mut place = 0;
    while let Some(bytes) = text.get(place..).and_then(<[u8]>::first_chunk) {
        let bytes = u64::from_le_bytes(*bytes);
        let others = bytes ^ (LOW * u64::from(end));
        // The highest bit of the first such byte, of none before it, and perhaps of some behind it.
        let found = ((bytes.wrapping_sub(LOW * 0x20) & !bytes) | (others.wrapping_sub(LOW) & !others)) & HIGH;
        if found > 0 {
            return Some(place + found.trailing_zeros() as usize / 8);
        }
        place += 8;
    }
    let rest = text.get(place..)?;
    rest.iter().position(|byte| *byte == end || *byte < b' ').map(|length| place + length)
}

/// The powers of ten.
const POWERS: [u64; 10] =
    [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// The text that was not read yet: lines that are laid out as a format's programs write them. A method takes what it
/// names from the begin of the text, or returns `None` if that is not there, or too near to the end of the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn of(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// Returns the text that was not taken.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns true if the next byte is a digit.
    #[inline(always)]
    pub(crate) fn is_at_digit(&self) -> bool {
        self.0.first().is_some_and(u8::is_ascii_digit)
    }

    /// Takes a number of up to 19 digits.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (count, first) = self.leading_digits()?;
        match count {
            0 => None,
            8 => self.more_digits(first),
            _ => Some(first),
        }
    }

    /// Takes the digits behind the first eight.
    #[inline]
    fn more_digits(&mut self, first: u64) -> Option<u64> {
        let (count, second) = self.leading_digits()?;
        let value = first * POWERS[count] + second;
        if count < 8 {
            return Some(value);
        }
        let (count, third) = self.leading_digits()?;
        (count <= 3).then(|| value * POWERS[count] + third)
    }

    /// Takes up to eight digits, and returns how many there are and the number that they are.
    #[inline(always)]
    fn leading_digits(&mut self) -> Option<(usize, u64)> {
        // The first byte is the lowest. A digit becomes its value, another byte 10 or more.
        let values = u64::from_le_bytes(*self.0.first_chunk()?) ^ (LOW * b'0' as u64);
        let others = (((values & !HIGH) + LOW * (0x80 - 10)) | values) & HIGH;
        let count = others.trailing_zeros() as usize / 8;
        self.0 = &self.0[count..];
        // Zeroes before the first digit; twice, as a shift by 64 is none.
        let values = values << (4 * (8 - count)) << (4 * (8 - count));
        // Each step joins neighbours: digits, pairs, fours.
        let pairs = values.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00ff_00ff_00ff_00ff;
        let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_ffff_0000_ffff;
        Some((count, fours.wrapping_mul(1 + (10_000 << 32)) >> 32))
    }

    /// Takes seconds with 1 to 18 decimals, and returns nanoseconds and the number of decimals; what is below a
    /// nanosecond is cut off.
    #[inline(always)]
    pub(crate) fn seconds(&mut self) -> Option<(u64, usize)> {
        let seconds = self.number()?;
        self.byte(b'.')?;
        let before = self.0.len();
        let decimals = self.number()?;
        let count = before - self.0.len();
        let below = match count {
            ..=9 => decimals * POWERS[9 - count],
            _ => decimals / POWERS.get(count - 9)?,
        };
        Some((seconds.checked_mul(1_000_000_000)?.checked_add(below)?, count))
    }

    /// Takes a byte.
    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == byte).then_some(())
    }

    /// Takes a text.
    #[inline(always)]
    pub(crate) fn text(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Takes one space or more.
    #[inline(always)]
    pub(crate) fn spaces(&mut self) -> Option<()> {
        let count = self.0.iter().position(|byte| *byte != b' ')?;
        self.0 = &self.0[count..];
        (count > 0).then_some(())
    }

    /// Takes the bytes before the next space or control character, one or more.
    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.text_before(b' ')?;
        (!word.is_empty()).then_some(word)
    }

    /// Takes a word and the byte behind it.
    #[inline(always)]
    pub(crate) fn word_and(&mut self, end: u8) -> Option<&'a [u8]> {
        let word = self.word()?;
        self.byte(end)?;
        Some(word)
    }

    /// Takes a text that begins and ends with no space, and the next `end` behind it, with no control character before it.
    #[inline(always)]
    pub(crate) fn until(&mut self, end: u8) -> Option<&'a [u8]> {
        let text = self.text_before(end)?;
        self.byte(end)?;
        (text.first() != Some(&b' ') && text.last() != Some(&b' ')).then_some(text)
    }

    /// Takes the text before the next `end` and that, with no control character before it.
    #[inline(always)]
    pub(crate) fn before(&mut self, end: u8) -> Option<()> {
        self.text_before(end)?;
        self.byte(end)
    }

    /// Takes the bytes before the next `end` or control character.
    #[inline(always)]
    fn text_before(&mut self, end: u8) -> Option<&'a [u8]> {
        let (text, rest) = self.0.split_at_checked(find_end(self.0, end)?)?;
        self.0 = rest;
        Some(text)
    }

    /// Takes a number and the byte behind it.
    #[inline(always)]
    pub(crate) fn number_and(&mut self, end: u8) -> Option<u64> {
        let number = self.number()?;
        self.byte(end)?;
        Some(number)
    }
}
