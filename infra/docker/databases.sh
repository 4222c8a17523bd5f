#!/bin/bash
# Run by the image `postgres` when it makes its data folder: a role and a database for each who needs one.
set -euo pipefail

make_database() {
  # Through psql's variables, so that no character of a password can end the statement.
  psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --set=name="$1" --set=password="$2" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
SQL
}

make_database cliptune "$CLIPTUNE_DATABASE_PASSWORD"
make_database mlflow "$MLFLOW_DATABASE_PASSWORD"
make_database prefect "$PREFECT_DATABASE_PASSWORD"
psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=prefect --command='CREATE EXTENSION IF NOT EXISTS pg_trgm'
