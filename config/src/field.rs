//! Fields of [`crate::Valid`] and the keys they come from.
//!
//! Model: a struct of one table has a field for each key, of the key's name. `settings!` reads it from a
//! [`Section`], writes it back as TOML values, and so compares two of them key by key.

use crate::section::Section;
use crate::types::{Mac, Method};
use crate::valid::{OnFull, Pages, SchedPolicy, SchedScope, Steer, Transit, Unmatched, WorkerMode};
use crate::value::Value;

/// A type that one key's value becomes.
///
/// Values reach `read` only after they passed the key's row; that the type holds all a row accepts is tested
/// for each key.
pub(crate) trait Field: Sized {
    /// From the value, or from the absence of one.
    fn read(value: Option<&Value>) -> Self;
    /// As TOML, `None` if it stands for the absence of a value.
    fn toml(&self) -> Option<String>;
}

/// The settings of one table.
pub(crate) trait Settings {
    /// Name of the table.
    const TABLE: &'static str;
    /// From the file's table.
    fn read(section: &Section) -> Self;
    /// Keys with their TOML values, in the order of the table.
    fn values(&self) -> Vec<(&'static str, Option<String>)>;
    /// Gives one key another value; `value` has passed the key's row.
    fn set(&mut self, name: &str, value: Option<&Value>);
    /// These settings, with `to`'s for each key in which `from` and `to` differ.
    fn edited(&self, from: &Self, to: &Self) -> Self;
}

impl Section {
    /// The value of a key or its default, as a field; the default also in place of a refused value.
    pub(crate) fn field<F: Field>(&self, name: &str) -> F {
        F::read(self.value(name).as_ref())
    }
}

/// Implements [`Settings`] for a struct: table, then the fields.
macro_rules! settings {
    ($name:ident, $table:literal, $($field:ident)*) => {
        impl Settings for crate::valid::$name {
            const TABLE: &'static str = $table;
            fn read(section: &Section) -> Self {
                Self { $($field: section.field(stringify!($field)),)* }
            }
            fn values(&self) -> Vec<(&'static str, Option<String>)> {
                vec![$((stringify!($field), Field::toml(&self.$field)),)*]
            }
            fn set(&mut self, name: &str, value: Option<&Value>) {
                match name {
                    $(stringify!($field) => self.$field = Field::read(value),)*
                    _ => unreachable!("callers name keys of the table"),
                }
            }
            fn edited(&self, from: &Self, to: &Self) -> Self {
                Self {
                    $($field: if from.$field == to.$field { &self.$field } else { &to.$field }.clone(),)*
                }
            }
        }
    };
}

settings!(Daemon, "daemon",
    socket socket_group socket_mode write_users read_groups write_rate write_burst state_dir log
);
settings!(Eal, "eal", pages memory_mb args);
settings!(Workers, "workers", cpus mode steer sched_scope nice);
settings!(Connections, "connections", max extras_max on_full);
settings!(Limits, "limits", services destinations neighbours icmp_rate icmp_burst);
settings!(Policy, "policy", unmatched transit echo);
settings!(Timeouts, "timeouts",
    tcp tcpfin udp synsent synrecv timewait close closewait lastack listen synack
);
settings!(Knobs, "sysctl",
    am_droprate amemthresh backup_only cache_bypass conn_lfactor conn_reuse_mode conntrack drop_entry drop_packet
    expire_nodest_conn expire_quiescent_template ignore_tunneled lblc_expiration lblcr_expiration
    nat_icmp_send pmtu_disc schedule_icmp secure_tcp sloppy_sctp sloppy_tcp snat_reroute
    svc_lfactor sync_persist_mode sync_ports sync_qlen_max sync_refresh_period sync_retries sync_sock_size
    sync_threshold sync_version
);
settings!(Estimators, "estimators",
    est_cpulist est_nice est_sched run_estimation est_load est_threads_max resume_spike
);

/// Implements [`Field`] for enums of words.
macro_rules! word_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            fn read(value: Option<&Value>) -> Self {
                match value {
                    Some(Value::Text(word)) => $name::from_name(word).expect("the row admits only its words"),
                    other => unreachable!("the row admits only words, not {other:?}"),
                }
            }
            fn toml(&self) -> Option<String> {
                Some(toml_text(self.name()))
            }
        }
    )*};
}
word_fields!(Method OnFull Pages SchedScope Steer Transit Unmatched WorkerMode);

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl Field for $int {
            fn read(value: Option<&Value>) -> Self {
                match value {
                    Some(Value::Int(n)) => <$int>::try_from(*n).expect("the row's range is within the field's"),
                    other => unreachable!("the row admits only integers, not {other:?}"),
                }
            }
            fn toml(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}
integers!(i8 u8 u16 u32 i32);

impl Field for bool {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Bool(yes)) => *yes,
            other => unreachable!("the row admits only true and false, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Field for String {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Text(text)) => text.clone(),
            other => unreachable!("the row admits only texts, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        Some(toml_text(self))
    }
}

impl Field for Vec<String> {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Texts(texts)) => texts.clone(),
            other => unreachable!("the row admits only lists of texts, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        Some(toml_list(self))
    }
}

/// CPU lists.
impl Field for Option<Vec<usize>> {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Cpus(cpus)) => Some(cpus.clone()),
            None => None,
            other => unreachable!("the row admits only CPU lists, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        self.as_ref().map(|cpus| toml_text(&cpu_list(cpus)))
    }
}

impl Field for SchedPolicy {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Text(text)) => text.parse().expect("the row admits only policies"),
            other => unreachable!("the row admits only policies, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        Some(toml_text(&self.to_string()))
    }
}

/// Thresholds.
impl Field for (i32, i32) {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Threshold(first, second)) => (*first, *second),
            other => unreachable!("the row admits only thresholds, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        Some(toml_text(&format!("{} {}", self.0, self.1)))
    }
}

impl Field for Option<Mac> {
    fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::Mac(mac)) => Some(*mac),
            None => None,
            other => unreachable!("the row admits only MAC addresses, not {other:?}"),
        }
    }
    fn toml(&self) -> Option<String> {
        self.map(|mac| toml_text(&mac.to_string()))
    }
}

/// A TOML string, escaped as it needs.
pub(crate) fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A TOML list of strings.
pub(crate) fn toml_list(texts: impl IntoIterator<Item = impl ToString>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| toml_text(&text.to_string())).collect();
    format!("[{}]", texts.join(", "))
}

/// Ascending CPU numbers as a list with ranges: `1-4,6`.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<_> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    texts.join(",")
}
