//! JSON values that know where they stand, so that errors can say it.

use super::ImportError;
use serde_json::Value;

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Value, ImportError> {
    serde_json::from_str(text).map_err(|e| ImportError::Json(e.to_string()))
}

/// A value and the way to it.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    value: &'a Value,
    parent: Option<&'a Cursor<'a>>,
    step: PathSegment<'a>,
}

#[derive(Clone, Copy)]
enum PathSegment<'a> {
    Field(&'a str),
    Index(usize),
}

impl<'a> Cursor<'a> {
    /// The whole file.
    pub fn root(value: &'a Value) -> Self {
        Self { value, parent: None, step: PathSegment::Field("") }
    }

    /// `nodes[3].size`.
    pub fn at(&self) -> String {
        let Some(parent) = self.parent else { return "the file".into() };
        let mut at = if parent.parent.is_some() { parent.at() } else { String::new() };
        match self.step {
            PathSegment::Index(i) => at.push_str(&format!("[{i}]")),
            PathSegment::Field(key) if at.is_empty() => at.push_str(key),
            PathSegment::Field(key) => at.push_str(&format!(".{key}")),
        }
        at
    }

    /// A field that must be there.
    pub fn field(&'a self, key: &'a str) -> Result<Cursor<'a>, ImportError> {
        if !self.value.is_object() {
            return Err(self.refuse("an object"));
        }
        self.optional(key).ok_or_else(|| ImportError::Missing { at: self.at(), what: key.into() })
    }

    /// A field that may be there.
    pub fn optional(&'a self, key: &'a str) -> Option<Cursor<'a>> {
        let value = self.value.get(key).filter(|v| !v.is_null())?;
        Some(Cursor { value, parent: Some(self), step: PathSegment::Field(key) })
    }

    /// The elements of a list of at most `limit` of them.
    pub fn list(
        &'a self,
        what: &'static str,
        limit: usize,
    ) -> Result<impl Iterator<Item = Cursor<'a>>, ImportError> {
        let list = self.value.as_array().ok_or_else(|| self.refuse("a list"))?;
        if list.len() > limit {
            return Err(ImportError::TooMany { what, limit });
        }
        let element =
            |(i, value)| Cursor { value, parent: Some(self), step: PathSegment::Index(i) };
        Ok(list.iter().enumerate().map(element))
    }

    /// Names and values of an object.
    pub fn entries(&'a self) -> Result<impl Iterator<Item = (&'a str, Cursor<'a>)>, ImportError> {
        let object = self.value.as_object().ok_or_else(|| self.refuse("an object"))?;
        Ok(object.iter().map(move |(key, value)| {
            (key.as_str(), Cursor { value, parent: Some(self), step: PathSegment::Field(key) })
        }))
    }

    /// Any number; its range is the caller's to check.
    pub fn number(&self) -> Result<f64, ImportError> {
        self.value.as_f64().ok_or_else(|| self.refuse("a number"))
    }

    /// A whole number of a range, written with or without `.0`.
    pub fn integer(&self, min: i64, max: i64, must: &'static str) -> Result<i64, ImportError> {
        let whole = |n: f64| (n % 1.0 == 0.0 && n.abs() < 1e15).then_some(n as i64);
        let number = self.value.as_i64().or_else(|| self.value.as_f64().and_then(whole));
        number.filter(|n| (min..=max).contains(n)).ok_or_else(|| self.refuse(must))
    }

    /// `true`, `false`, 1 or 0.
    pub fn flag(&self) -> Result<bool, ImportError> {
        match self.value.as_bool() {
            Some(flag) => Ok(flag),
            None => self.integer(0, 1, "true, false, 1 or 0").map(|n| n == 1),
        }
    }

    /// A text.
    pub fn text(&self) -> Result<&'a str, ImportError> {
        self.value.as_str().ok_or_else(|| self.refuse("a text"))
    }

    /// The error that this value is something else.
    pub fn refuse(&self, must: &'static str) -> ImportError {
        let mut value = match self.value {
            Value::Array(list) => format!("a list of {}", list.len()),
            Value::Object(_) => "an object".into(),
            other => other.to_string(),
        };
        if value.chars().count() > 40 {
            value = value.chars().take(40).chain("..".chars()).collect();
        }
        ImportError::Value { at: self.at(), value, must }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_the_path() {
        let value = parse(r#"{"a": [{"b": "x"}, {"b": 1.5}]}"#).unwrap();
        let root = Cursor::root(&value);
        let a = root.field("a").unwrap();
        let items: Vec<Cursor> = a.list("items", 9).unwrap().collect();
        let b = items[0].field("b").unwrap();
        assert_eq!(b.number().unwrap_err().to_string(), "a[0].b is \"x\", must be a number");
        let b = items[1].field("b").unwrap();
        assert_eq!(
            b.integer(0, 9, "small").unwrap_err().to_string(),
            "a[1].b is 1.5, must be small"
        );
        let missing = items[1].field("c").err().unwrap().to_string();
        assert_eq!(missing, "a[1]: c is missing");
        assert_eq!(root.field("z").err().unwrap().to_string(), "the file: z is missing");
    }
}
