//! Plain columns: each as wide as its widest cell, numbers to the right, no trailing blanks.

/// One column: its title, and whether its cells are numbers.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Title, upper case.
    pub title: &'static str,
    /// Aligned to the right.
    pub number: bool,
}

/// Column of texts.
pub const fn text(title: &'static str) -> Column {
    Column { title, number: false }
}

/// Column of numbers.
pub const fn number(title: &'static str) -> Column {
    Column { title, number: true }
}

/// The title line and one line a row, two blanks between columns.
pub fn render<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> String {
    let width = |i: usize| {
        rows.iter().map(|row| row[i].chars().count()).chain([columns[i].title.len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let titles: [String; N] = std::array::from_fn(|i| columns[i].title.to_owned());
    let mut out = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let cells: Vec<String> = (0..N)
            .map(|i| match columns[i].number {
                true => format!("{:>width$}", row[i], width = widths[i]),
                false => format!("{:<width$}", row[i], width = widths[i]),
            })
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["1".to_owned(), "a".to_owned()], ["1000".to_owned(), "no_dest".to_owned()]];
        assert_eq!(render([number("N"), text("REASON")], &rows), "   N  REASON\n   1  a\n1000  no_dest\n");
    }
}
