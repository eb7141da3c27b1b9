package fence

// Statements are those that the document shows.
var Statements = []string{mysqlUpsert, postgresUpsert, sqliteUpsert}
