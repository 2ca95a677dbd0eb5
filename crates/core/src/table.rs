//! Tables of named columns, for files and programs that analyse results.

/// A column and its values, one a row.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// Its name; one that measures something ends in its unit (`_ns`, `_bytes`).
    pub name: &'static str,
    /// Its values.
    pub values: Values,
}

/// The values of a column; none where a row has no such figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Counts, sizes and times: whole numbers.
    Count(Vec<Option<u64>>),
    /// Numbers.
    Real(Vec<Option<f64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

impl Values {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Count(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes columns of rows.
pub struct Columns<'a, R> {
    rows: &'a [R],
    columns: Vec<TableColumn>,
}

impl<'a, R> Columns<'a, R> {
    /// No columns of `rows` yet.
    pub fn of(rows: &'a [R]) -> Self {
        Self { rows, columns: Vec::new() }
    }

    /// Adds a column of texts.
    pub fn text(mut self, name: &'static str, of: impl Fn(&R) -> Option<String>) -> Self {
        let values = Values::Text(self.rows.iter().map(of).collect());
        self.columns.push(TableColumn { name, values });
        self
    }

    /// Adds a column of counts.
    pub fn count(mut self, name: &'static str, of: impl Fn(&R) -> Option<u64>) -> Self {
        let values = Values::Count(self.rows.iter().map(of).collect());
        self.columns.push(TableColumn { name, values });
        self
    }

    /// Adds a column of numbers.
    pub fn real(mut self, name: &'static str, of: impl Fn(&R) -> Option<f64>) -> Self {
        let values = Values::Real(self.rows.iter().map(of).collect());
        self.columns.push(TableColumn { name, values });
        self
    }

    /// Adds a column of flags.
    pub fn flag(mut self, name: &'static str, of: impl Fn(&R) -> Option<bool>) -> Self {
        let values = Values::Flag(self.rows.iter().map(of).collect());
        self.columns.push(TableColumn { name, values });
        self
    }

    /// The columns.
    pub fn finish(self) -> Vec<TableColumn> {
        self.columns
    }
}
