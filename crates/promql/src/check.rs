//! Whether the types of an expression fit, in the words of Prometheus' errors.

use crate::ast::*;
use crate::fault::ParseError;
use crate::functions::Function;

/// Checks an expression and all below it.
pub(crate) fn check(text: &str, node: &Node) -> Result<(), ParseError> {
    let wrong = |node: &Node, why: &str| Err(ParseError::new(text, node.span.start, why));
    let expect = |node: &Node, wanted: Type, context: &str| {
        let found = node.value_type();
        if found == wanted {
            return check(text, node);
        }
        let why = format!("expected type {} in {context}, got {}", wanted.word(), found.word());
        Err(ParseError::new(text, node.span.start, &why))
    };
    match &node.expr {
        Expr::Number(_) | Expr::String(_) => Ok(()),
        Expr::Vector(selector) | Expr::Matrix(selector, _) => {
            // Who leaves the label out has an empty one.
            if selector.matchers.iter().all(|matcher| matcher.matches("")) {
                return wrong(node, "vector selector must contain at least one non-empty matcher");
            }
            Ok(())
        }
        Expr::Subquery(subquery) => match subquery.inner.value_type() {
            Type::Vector => check(text, &subquery.inner),
            other => {
                let why = format!(
                    "subquery is only allowed on instant vector, got {} instead",
                    other.word()
                );
                wrong(node, &why)
            }
        },
        Expr::Call(function, arguments) => {
            if let Some(why) = wrong_count(function, arguments.len()) {
                return wrong(node, &why);
            }
            for (place, argument) in arguments.iter().enumerate() {
                let wanted = function.takes[place.min(function.takes.len() - 1)];
                expect(argument, wanted, &format!("call to function {:?}", function.name))?;
            }
            Ok(())
        }
        Expr::Aggregate(aggregate) => {
            expect(&aggregate.inner, Type::Vector, "aggregation expression")?;
            let wanted = match aggregate.op {
                Aggregation::CountValues => Type::String,
                _ => Type::Scalar,
            };
            match &aggregate.param {
                Some(param) => expect(param, wanted, "aggregation parameter"),
                None => Ok(()),
            }
        }
        Expr::Negative(inner) | Expr::Positive(inner) => match inner.value_type() {
            Type::Scalar | Type::Vector => check(text, inner),
            other => {
                let why = format!(
                    "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
                    other.word()
                );
                wrong(node, &why)
            }
        },
        Expr::Binary(binary) => check_binary(text, node, binary),
    }
}

fn wrong_count(function: &Function, count: usize) -> Option<String> {
    let (most, name) = (function.takes.len(), function.name);
    if function.repeats {
        return (count < most - 1).then(|| {
            format!("expected at least {} argument(s) in call to {name:?}, got {count}", most - 1)
        });
    }
    let least = most - function.optional;
    let word = match count {
        count if least == most && count != most => "",
        count if count < least => "at least ",
        count if count > most => "at most ",
        _ => return None,
    };
    let wanted = if count < least { least } else { most };
    Some(format!("expected {word}{wanted} argument(s) in call to {name:?}, got {count}"))
}

fn check_binary(text: &str, node: &Node, binary: &Binary) -> Result<(), ParseError> {
    let wrong = |node: &Node, why: &str| Err(ParseError::new(text, node.span.start, why));
    let (left, right) = (binary.left.value_type(), binary.right.value_type());
    for side in [&binary.left, &binary.right] {
        if !matches!(side.value_type(), Type::Scalar | Type::Vector) {
            return wrong(
                side,
                "binary expression must contain only scalar and instant vector types",
            );
        }
    }
    let (op, matching) = (binary.op, &binary.matching);
    if binary.bool && !op.is_comparison() {
        return wrong(node, "bool modifier can only be used on comparison operators");
    }
    if op.is_comparison() && !binary.bool && (left, right) == (Type::Scalar, Type::Scalar) {
        return wrong(node, "comparisons between scalars must use BOOL modifier");
    }
    if op.is_trim() && (left, right) == (Type::Scalar, Type::Scalar) {
        let why = format!("operator {:?} not allowed for Scalar operations", op.text());
        return wrong(node, &why);
    }
    if matching.on
        && let Some(label) = matching.include.iter().find(|label| matching.labels.contains(label))
    {
        return wrong(
            node,
            &format!("label {label:?} must not occur in ON and GROUP clause at once"),
        );
    }
    let is_scalar = left == Type::Scalar || right == Type::Scalar;
    if is_scalar && (matching.on || !matching.labels.is_empty()) {
        return wrong(node, "vector matching only allowed between instant vectors");
    }
    if is_scalar && op.is_set() {
        let why = format!("set operator {:?} not allowed in binary scalar expression", op.text());
        return wrong(node, &why);
    }
    if op.is_set() && matching.cardinality != Cardinality::ManyToMany {
        return wrong(node, &format!("no grouping allowed for {:?} operation", op.text()));
    }
    check(text, &binary.left)?;
    check(text, &binary.right)
}
