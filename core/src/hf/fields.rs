//! Fields of a configuration, and what is said where they cannot be used.

use super::HfError;
use serde_json::{Map, Value};

/// The fields of a `config.json`.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub fn parse(text: &str) -> Result<Self, HfError> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(HfError::File("no object".into())),
            Err(e) => Err(HfError::File(e.to_string())),
        }
    }

    /// What a field says; null says nothing.
    fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// Whether it says anything.
    pub fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// Whether a field is a list of nothing.
    pub fn is_empty_list(&self, field: &str) -> bool {
        self.get(field).and_then(Value::as_array).is_some_and(Vec::is_empty)
    }

    /// The numbers of a list, each 0 or 1, as flags.
    pub fn flags(&self, field: &str) -> Result<Option<Vec<bool>>, HfError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let flag = |value: &Value| match value {
            Value::Bool(flag) => Some(*flag),
            value => value.as_u64().filter(|number| *number < 2).map(|number| number == 1),
        };
        let flags = value.as_array().and_then(|list| list.iter().map(flag).collect());
        flags.map(Some).ok_or_else(|| self.refused(field, "a list of 0 and 1 is expected"))
    }

    /// The error of a field that says something that cannot be expressed.
    pub fn refused(&self, field: &str, why: &str) -> HfError {
        let value = self.get(field).map_or("missing".into(), Value::to_string);
        HfError::Field { field: field.into(), value, why: why.into() }
    }

    pub fn text(&self, field: &str) -> Result<Option<String>, HfError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.refused(field, "a text is expected")),
        }
    }

    /// A number from 1 to 2^20.
    pub fn number(&self, field: &str) -> Result<u64, HfError> {
        self.number_or(field, None)?.ok_or_else(|| HfError::Missing(field.into()))
    }

    /// The same, or another one where there is none.
    pub fn number_or(&self, field: &str, open: Option<u64>) -> Result<Option<u64>, HfError> {
        let Some(value) = self.get(field) else { return Ok(open) };
        let number = value.as_u64().filter(|number| (1..=1 << 20).contains(number));
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.refused(field, "a number from 1 to 1048576 is expected")),
        }
    }

    /// A positive float, or the usual one.
    pub fn float(&self, field: &str, usual: f64) -> Result<f32, HfError> {
        let value = self.get(field).map_or(Some(usual), Value::as_f64);
        match value.map(|value| value as f32).filter(|value| value.is_finite() && *value > 0.0) {
            Some(value) => Ok(value),
            None => Err(self.refused(field, "a positive number is expected")),
        }
    }

    pub fn flag(&self, field: &str, usual: bool) -> Result<bool, HfError> {
        match self.get(field) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.refused(field, "true or false is expected")),
        }
    }

    /// Refuses a flag that is set otherwise.
    pub fn must_be(&self, field: &str, wanted: bool, why: &str) -> Result<(), HfError> {
        match self.flag(field, wanted)? == wanted {
            true => Ok(()),
            false => Err(self.refused(field, why)),
        }
    }

    pub fn must_be_absent(&self, field: &str, why: &str) -> Result<(), HfError> {
        match self.get(field) {
            None => Ok(()),
            Some(_) => Err(self.refused(field, why)),
        }
    }

    /// How many entries a field has.
    pub fn entries(&self, field: &str) -> Option<u64> {
        self.get(field)?.as_object().map(|entries| entries.len() as u64)
    }

    /// The fields of an object in a field.
    pub fn inside(&self, field: &str) -> Result<Option<Self>, HfError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields.clone()))),
            Some(_) => Err(self.refused(field, "an object is expected")),
        }
    }
}
