//! `option`: transaction options by FoundationDB's names.

use super::data::number;
use super::session::{Refusal, Session};
use super::words::quoted;
use plinth::TransactionOption;
use plinth::client::OptionParameter;
use std::io::{self, Write};

/// `option [on|off NAME [ARGUMENT]]`
pub fn option<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    match arguments {
        [] => show(session),
        [state, name, rest @ ..] => match (&state[..], rest) {
            (b"on", rest) => on(session, name, rest.first()),
            (b"off", []) => off(session, name),
            (b"off", _) => Err(Refusal::Usage("off takes no argument".to_owned())),
            _ => {
                Err(Refusal::Usage(format!("an option is turned on or off, not {}", quoted(state))))
            }
        },
        [_] => Err(Refusal::Usage("which option? See help options".to_owned())),
    }
}

/// Prints the names there are.
pub fn names(out: &mut impl Write) -> io::Result<()> {
    for (_, name, parameter) in TransactionOption::ALL {
        let argument = match parameter {
            OptionParameter::None => "",
            OptionParameter::Int => " NUMBER",
            OptionParameter::String => " TEXT",
            OptionParameter::Bytes => " BYTES",
        };
        writeln!(out, "  {}{argument}", name.to_ascii_uppercase())?;
    }
    Ok(())
}

fn on<Out: Write>(
    session: &mut Session<Out>,
    name: &[u8],
    argument: Option<&Vec<u8>>,
) -> Result<(), Refusal> {
    let (code, known, parameter) = find(name)?;
    let value = value(&known, parameter, argument)?;
    // The database judges the value, on a transaction that is thrown away; it tells at the next
    // thing asked.
    let judge = session.database.create_transaction();
    let judged =
        judge.set_option_raw(code, value.as_deref()).and_then(|()| judge.approximate_size().wait());
    judged.map_err(|error| Refusal::Usage(error.to_string()))?;
    if let Some(begun) = &session.transaction {
        begun.transaction.set_option_raw(code, value.as_deref())?;
    }
    let scope = match &mut session.transaction {
        Some(begun) => {
            begun.options.insert(code, value);
            "current transaction"
        }
        None => {
            session.options.insert(code, value);
            "all transactions"
        }
    };
    writeln!(session.out, "Option enabled for {scope}")?;
    Ok(())
}

fn off<Out: Write>(session: &mut Session<Out>, name: &[u8]) -> Result<(), Refusal> {
    let (code, known, _) = find(name)?;
    if session.transaction.is_some() {
        let text =
            "an option can't be taken from a transaction that was begun; reset or rollback first";
        return Err(Refusal::Usage(text.to_owned()));
    }
    if session.options.remove(&code).is_none() {
        return Err(Refusal::Usage(format!("{known} is not on")));
    }
    writeln!(session.out, "Option disabled for all transactions")?;
    Ok(())
}

fn show<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let own = session.transaction.iter().flat_map(|begun| &begun.options);
    let on: Vec<_> = session.options.iter().chain(own).collect();
    if on.is_empty() {
        writeln!(session.out, "No options are enabled. The names: help options")?;
    }
    for (code, value) in on {
        let known = TransactionOption::ALL.iter().find(|(known, ..)| known == code);
        let Some((_, name, parameter)) = known else { continue };
        let value = match (parameter, value) {
            (OptionParameter::Int, Some(bytes)) => bytes[..]
                .try_into()
                .map_or_else(|_| String::new(), |bytes| i64::from_le_bytes(bytes).to_string()),
            (_, Some(bytes)) => quoted(bytes),
            (_, None) => String::new(),
        };
        writeln!(session.out, "{}", format!("{} {value}", name.to_ascii_uppercase()).trim_end())?;
    }
    Ok(())
}

fn find(name: &[u8]) -> Result<(i32, String, OptionParameter), Refusal> {
    let text = plinth::printable(name);
    let known =
        TransactionOption::ALL.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(&text));
    known
        .map(|(code, name, parameter)| (*code, name.to_ascii_uppercase(), *parameter))
        .ok_or_else(|| Refusal::Usage(format!("there is no option `{text}`; see help options")))
}

/// The value as the database takes it.
fn value(
    name: &str,
    parameter: OptionParameter,
    argument: Option<&Vec<u8>>,
) -> Result<Option<Vec<u8>>, Refusal> {
    match (parameter, argument) {
        (OptionParameter::None, None) => Ok(None),
        (OptionParameter::None, Some(_)) => {
            Err(Refusal::Usage(format!("{name} takes no argument")))
        }
        (_, None) => Err(Refusal::Usage(format!("{name} needs an argument"))),
        (OptionParameter::Int, Some(word)) => {
            Ok(Some(number::<i64>(word, "the argument")?.to_le_bytes().to_vec()))
        }
        (OptionParameter::String | OptionParameter::Bytes, Some(word)) => Ok(Some(word.clone())),
    }
}
